// Templates renders pages that list Go files, over and over, as a web server does.
package main

import (
	"flag"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/gopgo/guests/work"
)

const page = `<!DOCTYPE html>
<title>{{.Name}}</title>
<table>
{{range $i, $line := .Lines}}<tr id="L{{$i}}"{{if not $line}} class="blank"{{end}}><td><a href="/source/{{$.Name}}?line={{$i}}">{{printf "%4d" $i}}</a><td>{{$line}}
{{end}}</table>
`

type listing struct {
	Name  string
	Lines []string
}

func main() {
	flag.Parse()
	listings := make([]listing, flag.NArg())
	for i, file := range flag.Args() {
		source, err := os.ReadFile(file)
		work.Check(err)
		listings[i] = listing{filepath.Base(file), strings.Split(string(source), "\n")}
	}
	parsed := template.Must(template.New("page").Parse(page))
	work.Run(len(listings), func(i int) { work.Check(parsed.Execute(io.Discard, listings[i%len(listings)])) })
}
