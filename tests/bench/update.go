package main

import "github.com/vmprof-agent/vmprof-agent/tests/report"

// update rewrites the tables in the documentation that were measured.
func update(sections []section) error {
	for _, s := range sections {
		if err := report.Update(docs, s.name, s.table.Markdown()); err != nil {
			return err
		}
	}
	return nil
}
