package usdt

import (
	"path"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A language is an interpreter whose function-entry probe is supported.
type language struct {
	title           string   // for people
	files           []string // prefixes of its file names: the program and the library
	provider, probe string   // the USDT probe
	dialect         uint32   // how the kernel side reads a call

	// Indexes of the probe's arguments, from 0; none is -1.
	name, file, class int
	separator         string // between class and name

	missing string // what to do if there is no probe
	passes  string // when a process passes its probe: the rest of a sentence
}

const none = -1

// languages are the supported ones. Their order defines bpf.NamedCall.Language.
//
// Ruby's cmethod__entry must not be added: incrementing its semaphore crashes Ruby 3.1.
var languages = [...]language{
	{
		title: "PHP", files: []string{"php", "libphp"}, provider: "php", probe: "function__entry", dialect: bpf.USDTPHP,
		name: 0, file: 1, class: 3, separator: "::", // Zend/zend_dtrace.d: name, file, line, class, scope
		missing: "use a build with --enable-dtrace, such as Debian's",
		passes:  "it executes the probe only if it was started with USE_ZEND_DTRACE=1 in its environment",
	},
	{
		title: "Python", files: []string{"python", "libpython"}, provider: "python", probe: "function__entry",
		dialect: bpf.USDTArguments,
		name:    1, file: 0, class: none, // Include/pydtrace.d: file, name, line
		missing: "use a build with --with-dtrace, such as Debian's",
		passes: "Python 3.11 executes the probe only while a trace or profile function is set, such as " +
			"sys.setprofile(lambda *args: None)",
	},
	{
		title: "Ruby", files: []string{"ruby", "libruby"}, provider: "ruby", probe: "method__entry",
		dialect: bpf.USDTArguments,
		name:    1, file: 2, class: 0, separator: "#", // probes.d: class, name, file, line
		missing: "use a build with --enable-dtrace, such as Debian's",
		passes: "it executes the probe only while :call events are traced, such as with TracePoint.new(:call) " +
			"{}.enable",
	},
}

// languageOf returns the index of the language whose files have such a path, or -1.
func languageOf(file string) int {
	for i, l := range languages {
		for _, begin := range l.files {
			if strings.HasPrefix(path.Base(file), begin) {
				return i
			}
		}
	}
	return none
}

// isInterpreter reports whether a mapping is the code of a file that is named like an interpreter:
// php8.2, php-fpm8.2, libphp8.2.so. Only then is it worth reading the file.
func isInterpreter(m *proc.Mapping) bool {
	return m.Exec && m.IsFile() && languageOf(m.Path) != none
}
