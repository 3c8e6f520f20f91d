package sink

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/flame"
	"github.com/vmprof-agent/vmprof-agent/web"
)

const (
	// maxHTMLNodes bounds the contexts of one kind in a page. A browser draws as many in a fraction
	// of a second.
	maxHTMLNodes = 20_000
	// maxHTMLProfile bounds a profile that a page has inside, gzipped.
	maxHTMLProfile = 32 << 20
)

// A Page is one self-contained HTML file: flame graphs, tables and a timeline of some profiles,
// with these inside.
type Page struct {
	Title string
	// Text is shown before the graphs: a comparison.
	Text string
	// Commands to type are shown next to the graphs.
	Commands []string
	Flames   []*flame.Graph
	profiles []pageProfile
}

// A pageProfile is inside the page, and its graphs as well if it is drawn.
type pageProfile struct {
	name   string
	stored *pprof.Profile
	drawn  bool
}

// Add adds the graphs of a stored profile, and the profile under a name.
func (p *Page) Add(name string, stored *pprof.Profile) {
	p.profiles = append(p.profiles, pageProfile{name, stored, true})
}

// Attach adds a profile under a name, without graphs.
func (p *Page) Attach(name string, stored *pprof.Profile) {
	p.profiles = append(p.profiles, pageProfile{name, stored, false})
}

// pageData is the JSON in the page, which web/src/app.js reads.
type pageData struct {
	Format   int            `json:"format"`
	Title    string         `json:"title"`
	Text     string         `json:"text,omitempty"`
	Commands []string       `json:"commands,omitempty"`
	Kinds    []*flame.Graph `json:"kinds"`
	Files    []pageFileName `json:"files,omitempty"`
}

type pageFileName struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// The policy lets a page run its own script and nothing else, whatever the names in it are.
var pageTemplate = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{.Policy}}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>{{.Style}}</style>
</head>
<body>
<main id="app"><h1>{{.Title}}</h1><noscript>This page needs JavaScript. The profile is inside: open it in a browser with scripts, or record a .pb.gz or .txt file.</noscript></main>
`))

// Write writes the page. Whatever the names in the profiles are, they remain text. A profile that is
// too large is left out, and the page says so.
func (p *Page) Write(w io.Writer) error {
	data := pageData{Format: 1, Title: p.Title, Text: p.Text, Commands: p.Commands}
	var files [][]byte // gzipped pprof
	var notes []string
	flames := slices.Clip(p.Flames)
	for _, of := range p.profiles {
		if of.drawn {
			drawn, err := flame.Read(of.stored)
			if err != nil {
				return fmt.Errorf("draw %s: %w", of.name, err)
			}
			flames = append(flames, drawn...)
		}
		var file bytes.Buffer
		if err := of.stored.Write(&file); err != nil {
			return fmt.Errorf("write pprof profile: %w", err)
		}
		if file.Len() > maxHTMLProfile {
			notes = append(notes, fmt.Sprintf("%s is too large to be inside this page (%d MB): write a .pb.gz as well",
				of.name, file.Len()>>20))
			continue
		}
		data.Files = append(data.Files, pageFileName{fmt.Sprintf("file%d", len(files)), of.name})
		files = append(files, file.Bytes())
	}
	for _, f := range flames {
		cut := *f.Cut(maxHTMLNodes)
		cut.Notes = append(slices.Clip(cut.Notes), notes...)
		data.Kinds = append(data.Kinds, &cut)
	}
	encoded, err := json.Marshal(data) // escapes < and >, so it cannot end the element that it is in
	if err != nil {
		return fmt.Errorf("encode page: %w", err)
	}
	head := struct {
		Title  string
		Policy string
		Style  template.CSS
	}{p.Title, "default-src 'none'; script-src '" + hashOf(web.Script) +
		"'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'", template.CSS(web.Style)}
	if err := pageTemplate.Execute(w, head); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	text := &writer{w: w}
	text.write("<script type=\"application/json\" id=\"data\">", string(encoded), "</script>\n")
	for i, file := range files {
		text.write(fmt.Sprintf("<script type=\"application/octet-stream\" id=\"file%d\">", i),
			base64.StdEncoding.EncodeToString(file), "</script>\n")
	}
	text.write("<script>", web.Script, "</script>\n<!--\n", strings.ReplaceAll(web.Notices, "--", "- -"),
		"-->\n</body>\n</html>\n")
	if text.err != nil {
		return fmt.Errorf("write page: %w", text.err)
	}
	return nil
}

// WriteFile is the function Write for a page. For speedscope it writes the profiles that were added.
func (p *Page) WriteFile(path string, stdout io.Writer) error {
	if format, err := FormatOf(path); err == nil && format == FormatSpeedscope {
		return write(path, stdout, p.speedscope)
	}
	return write(path, stdout, p.Write)
}

// speedscope writes the profiles that were added.
func (p *Page) speedscope(w io.Writer) error {
	var profiles []*pprof.Profile
	for _, of := range p.profiles {
		profiles = append(profiles, of.stored)
	}
	return Speedscope(w, p.Title, profiles...)
}

// hashOf is what a policy has of a script.
func hashOf(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// A writer writes strings until one fails.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) write(parts ...string) {
	for _, part := range parts {
		if w.err == nil {
			_, w.err = io.WriteString(w.w, part)
		}
	}
}
