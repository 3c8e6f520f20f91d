package input

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Elements of a page, as package sink writes them: data that names the profiles, then the profiles.
const (
	pageBegins   = "<!doctype html"
	pageData     = `<script type="application/json" id="data">`
	pageProfile  = `<script type="application/octet-stream" id="`
	pageEnds     = "</script>"
	maxPageFiles = 64
)

// isPage reports whether data is an HTML page.
func isPage(data []byte) bool {
	return len(data) >= len(pageBegins) && strings.EqualFold(string(data[:len(pageBegins)]), pageBegins)
}

// profileInPage returns the profile, gzipped, that is inside a page of record or report. It fails
// if there is none, or if there are several.
func profileInPage(page []byte) ([]byte, error) {
	_, rest, found := bytes.Cut(page, []byte(pageProfile))
	if !found {
		return nil, errors.New("this page has no profile inside: name a .pb.gz file, or a page that record -o or " +
			"report -o wrote")
	}
	if n := bytes.Count(rest, []byte(pageProfile)) + 1; n > 1 {
		return nil, fmt.Errorf("this page has %d profiles inside%s: open it in a browser and save one of them", n,
			pageNames(page))
	}
	_, rest, found = bytes.Cut(rest, []byte(`">`))
	text, _, ended := bytes.Cut(rest, []byte(pageEnds))
	if !found || !ended {
		return nil, errors.New("this page is cut off")
	}
	data, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return nil, fmt.Errorf("decode the profile in the page: %w", err)
	}
	return data, nil
}

// pageNames lists the profiles in a page: " (cpu.pb.gz, alloc.pb.gz)"; "" if it does not name them.
func pageNames(page []byte) string {
	_, rest, _ := bytes.Cut(page, []byte(pageData))
	text, _, _ := bytes.Cut(rest, []byte(pageEnds))
	var data struct {
		Files []struct{ Name string }
	}
	if json.Unmarshal(text, &data) != nil || len(data.Files) == 0 || len(data.Files) > maxPageFiles {
		return ""
	}
	var names []string
	for _, f := range data.Files {
		names = append(names, stored.Printable(f.Name))
	}
	return " (" + strings.Join(names, ", ") + ")"
}
