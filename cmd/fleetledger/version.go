package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: `  fleetledger version`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(*cobra.Command, []string) error {
			if a.json {
				return a.printValue(struct {
					Version string `json:"version"`
					Go      string `json:"go"`
					System  string `json:"system"`
				}{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			printer{a.out}.f("fleetledger %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		}),
	}
}

// version is what the build knows of itself: the module's version, or the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if commit == "" {
		return "devel"
	}
	return commit + dirty
}
