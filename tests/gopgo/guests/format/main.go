// Format formats Go files over and over, as gofmt does.
package main

import (
	"flag"
	"go/format"
	"os"

	"github.com/vmprof-agent/vmprof-agent/tests/gopgo/guests/work"
)

func main() {
	flag.Parse()
	var sources [][]byte
	for _, file := range flag.Args() {
		source, err := os.ReadFile(file)
		work.Check(err)
		sources = append(sources, source)
	}
	work.Run(len(sources), func(i int) {
		_, err := format.Source(sources[i%len(sources)])
		work.Check(err)
	})
}
