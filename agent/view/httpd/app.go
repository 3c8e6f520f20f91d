package httpd

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/web"
)

// appPolicy lets the page run its own script, load its own data, and nothing else. Scripts set
// styles through the object model, which needs no permission.
const appPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// An asset is a file that the page loads. Its address changes with its content, so browsers may
// keep it.
type asset struct {
	name, mime string
	plain      []byte
	packed     []byte // gzipped
	version    string
}

func newAsset(name, mime, content string) *asset {
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
	_, _ = z.Write([]byte(content))                            // a buffer takes everything
	_ = z.Close()
	sum := sha256.Sum256([]byte(content))
	return &asset{name, mime, []byte(content), packed.Bytes(), hex.EncodeToString(sum[:8])}
}

// assets are made when somebody asks first: most agents are never looked at.
var assets = sync.OnceValue(func() []*asset {
	return []*asset{
		newAsset("app.js", "text/javascript; charset=utf-8", web.Script),
		newAsset("app.css", "text/css; charset=utf-8", web.Style),
		newAsset("notices.txt", "text/plain; charset=utf-8", web.Notices),
	}
})

// address is where the page loads the asset, relative to the front page, as the agent may be behind
// a proxy that adds a prefix.
func (a *asset) address() string { return "assets/" + a.name + "?v=" + a.version }

func serveAsset(w http.ResponseWriter, r *http.Request) {
	for _, a := range assets() {
		if a.name != r.PathValue("name") {
			continue
		}
		w.Header().Set("Content-Type", a.mime)
		if r.URL.Query().Get("v") == a.version {
			w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
		}
		body := a.plain
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			body = a.packed
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // an error means that the client went away
		return
	}
	http.NotFound(w, r)
}

// app is the page at /.
func app(w http.ResponseWriter, r *http.Request) {
	all := assets()
	w.Header().Set("Content-Security-Policy", appPolicy)
	render(w, "app", map[string]string{"Script": all[0].address(), "Style": all[1].address(),
		"Notices": all[2].address()})
}
