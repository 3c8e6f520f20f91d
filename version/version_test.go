package version

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestFrom(t *testing.T) {
	settings := func(kv ...string) (s []debug.BuildSetting) {
		for i := 0; i < len(kv); i += 2 {
			s = append(s, debug.BuildSetting{Key: kv[i], Value: kv[i+1]})
		}
		return s
	}
	const revision = "0123456789abcdef0123456789abcdef01234567"
	for _, tt := range []struct {
		name    string
		release string
		build   *debug.BuildInfo
		want    string
	}{
		{"release", "v1.2.3", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.2"}}, "v1.2.3"},
		{"go install", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.2"}}, "v1.2.2"},
		{"checkout", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"},
			Settings: settings("vcs.revision", revision, "vcs.modified", "false")}, "devel (0123456789ab)"},
		{"edited checkout", "", &debug.BuildInfo{
			Settings: settings("vcs.revision", revision, "vcs.modified", "true")}, "devel (0123456789ab, modified)"},
		{"short revision", "", &debug.BuildInfo{Settings: settings("vcs.revision", "12")}, "devel (12)"},
		{"tagged checkout", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"},
			Settings: settings("vcs.revision", revision, "vcs.modified", "false")}, "v1.2.3 (0123456789ab)"},
		{"edited tagged checkout", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3+dirty"},
			Settings: settings("vcs.revision", revision, "vcs.modified", "true")}, "v1.2.3 (0123456789ab, modified)"},
		{"go install of a commit", "",
			&debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.20261123214507-0123456789ab"}},
			"v1.2.4-0.20261123214507-0123456789ab (0123456789ab)"},
		{"go install of a commit before any tag", "",
			&debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261123214507-0123456789ab"}},
			"v0.0.0-20261123214507-0123456789ab (0123456789ab)"},
		{"nothing recorded", "", nil, "devel"},
	} {
		want := tt.want + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
		if got := fromBuild(tt.release, tt.build).String(); got != want {
			t.Errorf("%s: %q, want %q", tt.name, got, want)
		}
	}
	if Get().Version == "" {
		t.Error("this build has no version")
	}
}
