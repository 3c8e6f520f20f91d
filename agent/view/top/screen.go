package top

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// A view is what the table shows.
type view int

const (
	viewMethods view = iota
	viewThreads
	viewAllocations
	viewLocks
	viewWaits
	viewChanges
	viewCallers
	viewHelp
)

// content is what a view shows; callers are those of the view that they were asked for in.
func (v view) content() content {
	switch v {
	case viewAllocations:
		return content{true, profile.Allocations}
	case viewLocks:
		return content{true, profile.Locks}
	case viewWaits:
		return content{true, profile.OffCPU}
	}
	return content{}
}

// spans are the times that rows may be of.
var spans = [...]time.Duration{2 * time.Second, 10 * time.Second, time.Minute, Keep}

// A Key is a key that the user pressed: a printable character, or one of the others.
type Key struct {
	Rune  rune // 0: it is Other
	Other OtherKey
}

// An OtherKey is a key that has no character.
type OtherKey int

const (
	NoKey OtherKey = iota
	Up
	Down
	PageUp
	PageDown
	Home
	End
	Left
	Right
	Enter
	Escape
	Tab
	BackTab
	Backspace
	Interrupt // Ctrl-C
	Suspend   // Ctrl-Z
)

// A Command is what a key asks of the screen's owner.
type Command struct {
	Quit    bool
	Suspend bool
	Write   *Write
}

// A Write asks for a file of what is shown.
type Write struct {
	Path     string
	Profiles []*profile.Profile // consecutive windows, at least one
	Events   bool               // they are events of Kind instead of CPU time
	Kind     profile.EventKind
}

// A Screen is what the user sees: a view of a Model. One goroutine uses it.
type Screen struct {
	model   *Model
	view    view
	below   view // the view that callers and help go back to
	span    int  // index in spans
	service string
	of      methodName // method whose callers are shown
	search  string

	cursor  int
	moved   bool   // the cursor follows its row
	at      string // the row of the cursor
	rows    int    // rows of the table when it was last drawn
	visible int

	prompt  rune // 0: none; '/' search, 'w' write
	input   string
	message string

	states  [profile.EventKinds]string // states of the recording of events
	stopped string                     // why nothing runs; "" if something may
	own     float64                    // share of a CPU that top takes
	ascii   bool
}

// NewScreen returns a screen of the model that shows the methods of the last ten seconds.
func NewScreen(m *Model) *Screen { return &Screen{model: m, span: 1} }

// ASCII has sparklines drawn without block characters, for terminals that lack them.
func (s *Screen) ASCII() { s.ascii = true }

// Say shows a message until the next key.
func (s *Screen) Say(message string) { s.message = message }

// Recording sets what is shown of a kind of events until there are some: why there are none.
func (s *Screen) Recording(kind profile.EventKind, state string) { s.states[kind] = state }

// Stopped sets why nothing runs of what is shown, as a tracer or a signal stopped all of it; "" if
// something may run.
func (s *Screen) Stopped(why string) { s.stopped = why }

// Own sets the CPU time that top itself takes, as a share of one CPU.
func (s *Screen) Own(share float64) { s.own = share }

// Wants reports which kind of events the view shows; false for none. Only then should they be
// recorded, as it costs something.
func (s *Screen) Wants() (profile.EventKind, bool) {
	v := s.view
	if v == viewCallers || v == viewHelp {
		v = s.below
	}
	c := v.content()
	return c.kind, c.events
}

func (s *Screen) selection() selection { return selection{s.service, spans[s.span]} }

// Press handles a key.
func (s *Screen) Press(k Key) Command {
	s.message = ""
	if k.Other == Interrupt {
		return Command{Quit: true}
	}
	if k.Other == Suspend {
		return Command{Suspend: true}
	}
	if s.prompt != 0 {
		return s.typed(k)
	}
	switch k.Other {
	case Up:
		s.move(-1)
	case Down:
		s.move(1)
	case PageUp:
		s.move(-max(s.visible-1, 1))
	case PageDown:
		s.move(max(s.visible-1, 1))
	case Home:
		s.home()
	case End:
		s.move(s.rows)
	case Enter:
		s.showCallers()
	case Escape, Backspace:
		s.back()
	case Tab, Right:
		s.nextService(1)
	case BackTab, Left:
		s.nextService(-1)
	}
	switch k.Rune {
	case 'q':
		return Command{Quit: true}
	case 'j':
		s.move(1)
	case 'k':
		s.move(-1)
	case 'm':
		s.show(viewMethods)
	case 't':
		s.show(viewThreads)
	case 'a':
		s.show(viewAllocations)
	case 'l':
		s.show(viewLocks)
	case 'o':
		s.show(viewWaits)
	case 'd':
		s.show(viewChanges)
	case 'c':
		s.showCallers()
	case '?', 'h':
		if s.view != viewHelp {
			s.below = s.ground()
			s.view = viewHelp
		} else {
			s.back()
		}
	case '+', '=':
		s.span = min(s.span+1, len(spans)-1)
	case '-':
		s.span = max(s.span-1, 0)
	case 's':
		s.span = (s.span + 1) % len(spans)
	case ' ', 'p':
		s.model.paused = !s.model.paused
	case '/':
		s.prompt, s.input, s.search = '/', "", ""
	case 'w':
		s.prompt, s.input = 'w', s.fileName()
	}
	return Command{}
}

// ground is the view without callers or help on top of it.
func (s *Screen) ground() view {
	if s.view == viewCallers || s.view == viewHelp {
		return s.below
	}
	return s.view
}

func (s *Screen) show(v view) {
	if s.view == v {
		v = viewMethods
	}
	s.view = v
	s.home()
}

// back leaves what is on top: a search, callers, help, or another view than methods.
func (s *Screen) back() {
	switch {
	case s.view == viewCallers || s.view == viewHelp:
		s.view = s.below
		s.below = viewMethods
		return
	case s.search != "":
		s.search = ""
	default:
		s.view = viewMethods
	}
	s.home()
}

func (s *Screen) home() { s.cursor, s.moved, s.at = 0, false, "" }

func (s *Screen) move(by int) {
	s.cursor = min(max(s.cursor+by, 0), max(s.rows-1, 0))
	s.moved, s.at = s.cursor > 0, ""
}

// showCallers shows the callers of the method at the cursor.
func (s *Screen) showCallers() {
	if s.view == viewCallers {
		s.back()
		return
	}
	lines := s.table()
	if s.view == viewThreads || s.view == viewHelp || len(lines) == 0 {
		s.message = "callers are those of a method: press m, then choose one"
		return
	}
	s.of = lines[min(s.find(lines), len(lines)-1)].method
	s.below, s.view = s.view, viewCallers
	s.home()
}

// nextService selects the service that is so many further; the first is all of them.
func (s *Screen) nextService(by int) {
	names := []string{""}
	for _, row := range s.model.services(spans[s.span], 0)[1:] {
		names = append(names, row.name)
	}
	at := max(slices.Index(names, s.service), 0)
	s.service = names[(at+by+len(names))%len(names)]
	if len(names) == 2 { // all of them are one
		s.service = ""
	}
	s.home()
}

// typed handles a key of a prompt. A search takes effect while it is typed.
func (s *Screen) typed(k Key) Command {
	const longest = 200 // bytes
	prompt := s.prompt
	switch {
	case k.Other == Escape:
		s.prompt, s.input = 0, ""
	case k.Other == Backspace:
		runes := []rune(s.input)
		s.input = string(runes[:max(len(runes)-1, 0)])
	case k.Other == Enter && s.prompt == 'w':
		s.prompt = 0
		return s.write(s.input)
	case k.Other == Enter:
		s.prompt = 0
		return Command{}
	case k.Rune != 0 && unicode.IsPrint(k.Rune) && len(s.input) < longest:
		s.input += string(k.Rune)
	default:
		return Command{}
	}
	if prompt == '/' && s.search != s.input {
		s.search = s.input
		s.home()
	}
	return Command{}
}

// write asks for a file of what is shown.
func (s *Screen) write(path string) Command {
	if path == "" {
		return Command{}
	}
	in := s.ground().content()
	profiles := s.model.profiles(in, s.selection())
	if len(profiles) == 0 {
		s.message = "nothing was recorded yet"
		return Command{}
	}
	return Command{Write: &Write{Path: path, Profiles: profiles, Events: in.events, Kind: in.kind}}
}

// fileName suggests a name for a file: of plain characters, though services may be called anything.
func (s *Screen) fileName() string {
	what := "cpu"
	if in := s.ground().content(); in.events {
		what = in.kind.String()
	}
	name := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_') {
			return r
		}
		return '_'
	}, strings.TrimSuffix(s.service, ".service"))
	at := ""
	if n := len(s.model.cpu); n > 0 {
		at = s.model.cpu[n-1].end.Format("150405")
	}
	parts := slices.DeleteFunc([]string{"top", name[:min(len(name), 40)], what, at},
		func(part string) bool { return part == "" })
	return strings.Join(parts, "-") + ".html"
}

// A tableRow is a line of any table but that of callers.
type tableRow struct {
	key     string // the row, whatever its figures
	method  methodName
	figures []string // the left columns
	label   string   // an additional column; "" if there is none
	name    string   // the method, or what else the row is of
	right   string   // the busiest caller or the hottest method
	style   Style
}

// table are the rows of the view that match the search.
func (s *Screen) table() (list []tableRow) {
	sel := s.selection()
	add := func(r tableRow) {
		r.key = r.name + "\x00" + r.label + "\x00" + string(rune(r.method.code))
		if s.matches(r.name) || s.matches(r.label) || s.matches(r.right) {
			list = append(list, r)
		}
	}
	switch s.view {
	case viewMethods:
		all, _ := s.model.methods(sel)
		for _, r := range all {
			add(tableRow{method: r.method, figures: []string{percent(r.share), r.interval.String()},
				name:  r.method.name,
				right: withShare(r.caller, r.callerShare), style: codeStyle(r.method.code)})
		}
	case viewThreads:
		all, _ := s.model.threads(sel)
		for _, r := range all {
			add(tableRow{figures: []string{percent(r.share), r.interval.String()}, name: r.label,
				right: withShare(r.caller, r.callerShare)})
		}
	case viewAllocations, viewLocks, viewWaits:
		kind := s.view.content().kind
		all, seconds := s.model.eventRows(kind, sel)
		for _, r := range all {
			add(tableRow{method: r.method, figures: []string{valueText(kind, r.value/seconds), percent(r.share),
				r.interval.String()}, label: r.label,
				name: r.method.name, right: withShare(r.caller, r.callerShare), style: codeStyle(r.method.code)})
		}
	case viewChanges:
		all, _ := s.model.diff(sel)
		for _, r := range all {
			row := tableRow{method: r.method, figures: []string{percent(r.now), percent(r.before),
				fmt.Sprintf("%+.1f", 100*r.delta()),
				fmt.Sprintf("±%.1f", 100*r.within)}, name: r.method.name, right: withShare(r.caller, r.callerShare)}
			switch {
			case !r.certain():
				row.style = Dim
			case r.delta() > 0:
				row.style = More
			default:
				row.style = Less
			}
			add(row)
		}
	}
	return list
}

// matches reports whether a text has what is searched for. Capitals count only if some are searched
// for.
func (s *Screen) matches(in string) bool {
	if strings.ToLower(s.search) == s.search {
		in = strings.ToLower(in)
	}
	return strings.Contains(in, s.search)
}

// find returns where the cursor is in the rows.
func (s *Screen) find(lines []tableRow) int {
	if s.moved && s.at != "" {
		if i := slices.IndexFunc(lines, func(r tableRow) bool { return r.key == s.at }); i >= 0 {
			return i
		}
	}
	return min(s.cursor, max(len(lines)-1, 0))
}

// percent writes a share, 0 to 1.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// String writes the interval in percent.
func (i interval) String() string {
	end := func(v float64) string {
		if v >= 0.9995 {
			return "100"
		}
		return fmt.Sprintf("%.1f", 100*v)
	}
	return end(i.low) + "-" + end(i.high)
}

func withShare(name string, share float64) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("%3.0f%% %s", 100*share, name)
}

// valueText writes a main value.
func valueText(kind profile.EventKind, value float64) string {
	if kind == profile.Locks || kind == profile.OffCPU {
		return delayText(value / float64(time.Second))
	}
	return bytesText(value)
}

func bytesText(bytes float64) string { return stored.ThreeDigits(bytes) + "B" }

// delayText writes seconds.
func delayText(seconds float64) string {
	switch {
	case seconds == 0:
		return "0"
	case seconds < 0.0009995:
		return stored.ThreeDigits(seconds*1e6) + "us"
	case seconds < 0.9995:
		return stored.ThreeDigits(seconds*1e3) + "ms"
	}
	return stored.ThreeDigits(seconds) + "s"
}

// codeStyle distinguishes kinds of code.
func codeStyle(code profile.CodeKind) Style {
	switch code {
	case profile.KernelCode:
		return Kernel
	case profile.NativeCode:
		return Native
	}
	return Plain
}
