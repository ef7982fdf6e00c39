package runner

// EndMarked has nothing to do: a command and all that it started are in a job
// object, which ends with the agent.
func EndMarked(string) (ended int) { return 0 }
