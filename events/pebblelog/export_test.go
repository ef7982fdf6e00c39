package pebblelog

// Forget makes l's committer remember as little as it can. It is called before
// the first append.
func Forget(l *Log) {
	l.staged.heads.limit, l.staged.ids.limit, l.staged.keys.limit = 1, 1, 1
}

// AwaitScrubs waits for what l does by itself when it is opened.
func AwaitScrubs(l *Log) { l.scrubs.Wait() }
