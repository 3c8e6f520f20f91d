// Xz compresses files and expands them again, over and over.
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
	var files [][]byte
	for _, name := range flag.Args() {
		file, err := os.ReadFile(name)
		work.Check(err)
		files = append(files, file)
	}
	var packed bytes.Buffer
	work.Run(len(files), func(i int) {
		packed.Reset()
		w, err := xz.NewWriter(&packed)
		work.Check(err)
		_, err = w.Write(files[i%len(files)])
		work.Check(err)
		work.Check(w.Close())
		r, err := xz.NewReader(&packed)
		work.Check(err)
		_, err = io.Copy(io.Discard, r)
		work.Check(err)
	})
}
