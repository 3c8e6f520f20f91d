package jfr

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// A Setting is a setting of a type of events. Only types with settings are recorded.
type Setting struct {
	Event string // ExecutionSample
	Name  string // period
	Value string // 10 ms
}

// A Recording runs in a JVM that was started without one.
type Recording struct {
	jdk  jvm.JDK
	pid  int
	path string
}

// recordingName is the recording's name in the JVM.
const recordingName = "comparison"

// Start starts a recording in the JVM pid, which has the given settings and no others. It ends with
// Stop, in the file at path. The settings are written next to it.
func Start(ctx context.Context, jdk jvm.JDK, pid int, path string, settings ...Setting) (*Recording, error) {
	list, err := configuration(settings)
	if err != nil {
		return nil, fmt.Errorf("write the settings of JFR: %w", err)
	}
	file := path + ".jfc"
	if err := os.WriteFile(file, list, 0o644); err != nil {
		return nil, fmt.Errorf("write the settings of JFR: %w", err)
	}
	r := &Recording{jdk: jdk, pid: pid, path: path}
	return r, r.order(ctx, "JFR.start", "name="+recordingName, "settings="+file, "filename="+path)
}

// Stop ends the recording.
func (r *Recording) Stop(ctx context.Context) error {
	if err := r.order(ctx, "JFR.stop", "name="+recordingName); err != nil {
		return err
	}
	if _, err := os.Stat(r.path); err != nil { // jcmd prints what went wrong, and exits with 0
		return fmt.Errorf("end a recording of JFR: %w", err)
	}
	return nil
}

// order sends the JVM a command for its recording.
func (r *Recording) order(ctx context.Context, order ...string) error {
	jcmd := exec.CommandContext(ctx, filepath.Join(r.jdk.Home, "bin", "jcmd"), strconv.Itoa(r.pid),
		strings.Join(order, " "))
	if output, err := jcmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", order[0], err, output)
	}
	return nil
}

// configuration is the file that JFR reads settings from.
func configuration(settings []Setting) ([]byte, error) {
	type setting struct {
		Name  string `xml:"name,attr"`
		Value string `xml:",chardata"`
	}
	type event struct {
		Name     string    `xml:"name,attr"`
		Settings []setting `xml:"setting"`
	}
	var file struct {
		XMLName xml.Name `xml:"configuration"`
		Version string   `xml:"version,attr"`
		Events  []event  `xml:"event"`
	}
	file.Version = "2.0"
	for _, s := range settings {
		last := len(file.Events) - 1
		if last < 0 || file.Events[last].Name != s.Event {
			file.Events = append(file.Events, event{Name: s.Event, Settings: []setting{{"enabled", "true"}}})
			last++
		}
		file.Events[last].Settings = append(file.Events[last].Settings, setting{s.Name, s.Value})
	}
	text, err := xml.MarshalIndent(file, "", "  ")
	return append([]byte(xml.Header), text...), err
}
