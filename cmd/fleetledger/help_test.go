package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command says what it does and shows how.
func TestHelp(t *testing.T) {
	a := &app{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || !strings.Contains(cmd.Example, "fleetledger") {
			t.Errorf("%s has no description or no example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(a.root())
}
