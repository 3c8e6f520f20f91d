package sink

import (
	"encoding/json"
	"fmt"
	"io"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// The JSON that www.speedscope.app and its offline version open: frames once, and stacks as lists
// of their numbers.
type speedscopeFile struct {
	Schema   string `json:"$schema"`
	Name     string `json:"name"`
	Exporter string `json:"exporter"`
	Shared   struct {
		Frames []speedscopeFrame `json:"frames"`
	} `json:"shared"`
	Profiles []speedscopeProfile `json:"profiles"`
}

type speedscopeFrame struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
	Line int64  `json:"line,omitempty"`
}

type speedscopeProfile struct {
	Type    string  `json:"type"`
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	Start   int64   `json:"startValue"`
	End     int64   `json:"endValue"`
	Samples [][]int `json:"samples"` // outermost first
	Weights []int64 `json:"weights"`
}

// speedscopeUnits are its words for pprof's.
var speedscopeUnits = map[string]string{stored.UnitTime: stored.UnitTime, stored.UnitBytes: stored.UnitBytes}

// Speedscope writes stored profiles as one speedscope file: one profile for each sample type with
// values. The outermost frame is the process.
func Speedscope(w io.Writer, name string, profiles ...*pprof.Profile) error {
	f := speedscopeFile{Schema: "https://www.speedscope.app/file-format-schema.json", Name: name,
		Exporter: "vmprof-agent", Profiles: []speedscopeProfile{}}
	f.Shared.Frames = []speedscopeFrame{}
	frames := make(map[speedscopeFrame]int)
	frame := func(of speedscopeFrame) int {
		at, known := frames[of]
		if !known {
			at = len(f.Shared.Frames)
			frames[of] = at
			f.Shared.Frames = append(f.Shared.Frames, of)
		}
		return at
	}
	for _, p := range profiles {
		for column, t := range p.SampleType {
			if t.Type == stored.TypeSamples && len(p.SampleType) > 1 {
				continue // the same as CPU time
			}
			out := speedscopeProfile{Type: "sampled", Name: stored.Printable(t.Type), Unit: "none", Samples: [][]int{},
				Weights: []int64{}}
			if unit, known := speedscopeUnits[t.Unit]; known {
				out.Unit = unit
			}
			for _, s := range p.Sample {
				value := s.Value[column]
				if value <= 0 || out.End+value < out.End {
					continue
				}
				var stack []int
				if comm := s.Label[stored.LabelComm]; len(comm) > 0 {
					stack = append(stack, frame(speedscopeFrame{Name: stored.Printable(comm[0])}))
				}
				for i := len(s.Location) - 1; i >= 0; i-- {
					lines := s.Location[i].Line
					for j := len(lines) - 1; j >= 0; j-- {
						one := speedscopeFrame{Name: stored.Unnamed, Line: max(lines[j].Line, 0)}
						if function := lines[j].Function; function != nil {
							one.Name, one.File = stored.Printable(function.Name), stored.Printable(function.Filename)
						}
						stack = append(stack, frame(one))
					}
				}
				out.Samples, out.Weights = append(out.Samples, stack), append(out.Weights, value)
				out.End += value
			}
			if out.End > 0 {
				f.Profiles = append(f.Profiles, out)
			}
		}
	}
	if err := json.NewEncoder(w).Encode(f); err != nil {
		return fmt.Errorf("write speedscope profile: %w", err)
	}
	return nil
}
