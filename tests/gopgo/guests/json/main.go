// JSON writes the tokens of Go files as JSON and reads them back, over and over.
package main

import (
	"encoding/json"
	"flag"
	"go/scanner"
	"go/token"
	"os"

	"github.com/vmprof-agent/vmprof-agent/tests/gopgo/guests/work"
)

type item struct {
	Line    int               `json:"line"`
	Column  int               `json:"column"`
	Kind    string            `json:"kind"`
	Text    string            `json:"text,omitempty"`
	Keyword bool              `json:"keyword"`
	More    map[string]string `json:"more,omitempty"`
}

func main() {
	flag.Parse()
	all := make([][]item, flag.NArg())
	for i, name := range flag.Args() {
		source, err := os.ReadFile(name)
		work.Check(err)
		all[i] = items(name, source)
	}
	work.Run(len(all), func(i int) {
		written, err := json.Marshal(all[i%len(all)])
		work.Check(err)
		var read []item
		work.Check(json.Unmarshal(written, &read))
	})
}

// items are the tokens of a file.
func items(name string, source []byte) (list []item) {
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return list
		}
		place := file.Position(at)
		one := item{Line: place.Line, Column: place.Column, Kind: kind.String(), Text: text, Keyword: kind.IsKeyword()}
		if kind == token.COMMENT {
			one.More = map[string]string{"file": name}
		}
		list = append(list, one)
	}
}
