package sink_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/input"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/web"
)

// evil is a name that would break out of an element, an attribute, a comment or a script.
const evil = `--></script><img src=x onerror=alert(1)>"'<!--` + "\u2028\x00`${alert(2)}"

func evilProfile() *pprof.Profile {
	m := &pprof.Mapping{ID: 1, File: evil}
	f := &pprof.Function{ID: 1, Name: evil, SystemName: evil, Filename: evil}
	l := &pprof.Location{ID: 1, Mapping: m, Line: []pprof.Line{{Function: f, Line: 3}}}
	return &pprof.Profile{
		SampleType:    []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		DurationNanos: 1e9, TimeNanos: 1e18,
		Mapping: []*pprof.Mapping{m}, Function: []*pprof.Function{f}, Location: []*pprof.Location{l},
		Comments: []string{evil},
		Sample: []*pprof.Sample{{Location: []*pprof.Location{l}, Value: []int64{1, 10},
			NumLabel: map[string][]int64{"pid": {1}},
			Label:    map[string][]string{"comm": {evil}, "thread": {evil}, "service": {evil}}}},
	}
}

// Whatever the names in a profile are, a page has no element but its own, and they survive as text.
func TestHostilePage(t *testing.T) {
	page := sink.Page{Title: evil, Text: evil, Commands: []string{evil}}
	page.Add(evil, evilProfile())
	var out bytes.Buffer
	if err := page.Write(&out); err != nil {
		t.Fatal(err)
	}
	html := strings.Replace(out.String(), web.Script, "", 1)
	if n := strings.Count(html, "<script"); n != 3 {
		t.Errorf("%d scripts", n)
	}
	if n := strings.Count(html, "</script"); n != 3 {
		t.Errorf("%d ends of scripts", n)
	}
	if strings.Contains(html, "<img") || strings.Count(html, "<!--") != 1 || strings.Count(html, "-->") != 1 {
		t.Error("a name became markup")
	}
	data := regexp.MustCompile(`<script type="application/json" id="data">(.*)</script>`).FindStringSubmatch(html)
	var parsed struct {
		Kinds []struct{ Names []string }
		Files []struct{ Name string }
	}
	if len(data) != 2 || json.Unmarshal([]byte(data[1]), &parsed) != nil || len(parsed.Kinds) != 1 ||
		parsed.Files[0].Name != strings.ToValidUTF8(evil, "\ufffd") {
		t.Fatalf("the data is not what was written: %.300s", data)
	}
	if !strings.Contains(strings.Join(parsed.Kinds[0].Names, "\n"), "<img src=x") {
		t.Errorf("the names are lost: %q", parsed.Kinds[0].Names)
	}
}

// The profile inside a page is the profile.
func TestPageHasProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.html")
	want := evilProfile()
	if err := sink.WriteStored(path, nil, want); err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inside := regexp.MustCompile(`id="file0">([^<]*)</script>`).FindSubmatch(html)
	if len(inside) != 2 {
		t.Fatal("there is no profile inside")
	}
	data, err := base64.StdEncoding.DecodeString(string(inside[1]))
	if err != nil {
		t.Fatal(err)
	}
	var alone bytes.Buffer
	if err := want.Write(&alone); err != nil {
		t.Fatal(err)
	}
	if _, err := input.Read(bytes.NewReader(data)); err != nil || !bytes.Equal(data, alone.Bytes()) {
		t.Errorf("%d bytes inside instead of %d, %v", len(data), alone.Len(), err)
	}
}

func TestSpeedscope(t *testing.T) {
	var out bytes.Buffer
	if err := sink.Speedscope(&out, "x", evilProfile(), evilProfile()); err != nil {
		t.Fatal(err)
	}
	var file struct {
		Schema   string `json:"$schema"`
		Shared   struct{ Frames []struct{ Name string } }
		Profiles []struct {
			Type, Unit           string
			StartValue, EndValue int64
			Samples              [][]int
			Weights              []int64
		}
	}
	if err := json.Unmarshal(out.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Profiles) != 2 || len(file.Shared.Frames) != 2 || file.Profiles[0].Unit != "nanoseconds" ||
		file.Profiles[0].EndValue != 10 ||
		len(file.Profiles[0].Samples[0]) != 2 || file.Profiles[0].Weights[0] != 10 {
		t.Errorf("%s", out.String())
	}
}
