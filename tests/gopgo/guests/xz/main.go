// Xz compresses the text of files and expands it again, over and over.
package main

import (
	"bytes"
	"flag"
	"io"
	"os"

	"github.com/ulikunitz/xz"

	"github.com/vmprof-agent/vmprof-agent/tests/gopgo/guests/work"
)

func main() {
	flag.Parse()
	var text []byte
	for _, name := range flag.Args() {
		file, err := os.ReadFile(name)
		work.Check(err)
		text = append(text, file...)
	}
	text = text[:min(len(text), 1<<20)]
	var packed bytes.Buffer
	work.Run(1, func(int) {
		packed.Reset()
		w, err := xz.NewWriter(&packed)
		work.Check(err)
		_, err = w.Write(text)
		work.Check(err)
		work.Check(w.Close())
		r, err := xz.NewReader(&packed)
		work.Check(err)
		_, err = io.Copy(io.Discard, r)
		work.Check(err)
	})
}
