package top

import (
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/gdamore/tcell/v2"
	"golang.org/x/term"

	"github.com/vmprof-agent/vmprof-agent/agent/view/top"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// useRecord is the remedy where top cannot draw.
const useRecord = "use record -d 10 instead"

// checkTerminal refuses to draw on what is no terminal.
func checkTerminal(stdout io.Writer) error {
	f, ok := stdout.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || !term.IsTerminal(int(os.Stdin.Fd())) {
		return cli.Misuse("top needs a terminal: " + useRecord)
	}
	return nil
}

// A terminal is the screen that top draws on, from openTerminal to close.
type terminal struct {
	screen tcell.Screen
	input  chan input // closed when the terminal is gone
	quit   chan struct{}
	guard  *guard // nil: there is none
}

// An input is a key, or asks to draw everything anew, as the terminal has another size or shows
// something else.
type input struct {
	key top.Key
	all bool
}

// openTerminal takes the terminal.
func openTerminal() (*terminal, error) {
	// Without a guard, kill -9 leaves the terminal as it is then; all else works.
	guard, _ := startGuard()
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		if guard != nil {
			guard.letGo()
		}
		return nil, cli.Misuse(fmt.Sprintf("top cannot draw on this terminal (TERM=%s): %v; %s", os.Getenv("TERM"), err,
			useRecord))
	}
	t := &terminal{screen: screen, input: make(chan input), quit: make(chan struct{}), guard: guard}
	events := make(chan tcell.Event)
	go screen.ChannelEvents(events, t.quit)
	go t.translate(events)
	return t, nil
}

// close gives the terminal back as it was.
func (t *terminal) close() {
	close(t.quit)
	t.screen.Fini()
	if t.guard != nil {
		t.guard.letGo()
	}
}

// utf8 reports whether the terminal shows any character.
func (t *terminal) utf8() bool { return t.screen.CharacterSet() == "UTF-8" }

// suspend gives the terminal back, and stops the program as Ctrl-Z does, until it is continued.
func (t *terminal) suspend() error {
	if err := t.screen.Suspend(); err != nil {
		return fmt.Errorf("restore the terminal: %w", err)
	}
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := t.screen.Resume(); err != nil {
		return fmt.Errorf("reopen the terminal: %w", err)
	}
	return nil
}

// keysOf are the keys without a character.
var keysOf = map[tcell.Key]top.OtherKey{
	tcell.KeyUp: top.Up, tcell.KeyDown: top.Down, tcell.KeyPgUp: top.PageUp, tcell.KeyPgDn: top.PageDown,
	tcell.KeyHome: top.Home,
	tcell.KeyEnd:  top.End, tcell.KeyLeft: top.Left, tcell.KeyRight: top.Right, tcell.KeyEnter: top.Enter,
	tcell.KeyEscape: top.Escape,
	tcell.KeyTab:    top.Tab, tcell.KeyBacktab: top.BackTab, tcell.KeyBackspace: top.Backspace,
	tcell.KeyBackspace2: top.Backspace,
	tcell.KeyCtrlC:      top.Interrupt, tcell.KeyCtrlZ: top.Suspend,
}

// translate makes inputs of events, until there are no more.
func (t *terminal) translate(events <-chan tcell.Event) {
	defer close(t.input)
	for event := range events {
		var in input
		switch event := event.(type) {
		case *tcell.EventKey:
			in.key.Other = keysOf[event.Key()]
			if event.Key() == tcell.KeyRune && event.Modifiers()&^tcell.ModShift == 0 {
				in.key.Rune = event.Rune()
			}
			in.all = event.Key() == tcell.KeyCtrlL
		case *tcell.EventResize:
			in.all = true
		case *tcell.EventError:
			return
		}
		select {
		case t.input <- in:
		case <-t.quit:
			return
		}
	}
}

// anew has the next draw draw everything. As close, it must not run in another goroutine: tcell
// panics once the screen is closed.
func (t *terminal) anew() { t.screen.Sync() }

// styles are how styles look. tcell leaves out colours if NO_COLOR is set.
var styles = map[top.Style]tcell.Style{
	top.Plain:    tcell.StyleDefault,
	top.Bold:     tcell.StyleDefault.Bold(true),
	top.Dim:      tcell.StyleDefault.Dim(true),
	top.Bar:      tcell.StyleDefault.Reverse(true),
	top.Selected: tcell.StyleDefault.Bold(true).Underline(true),
	top.Kernel:   tcell.StyleDefault.Foreground(tcell.ColorOlive),
	top.Native:   tcell.StyleDefault.Foreground(tcell.ColorTeal),
	top.More:     tcell.StyleDefault.Foreground(tcell.ColorMaroon).Bold(true),
	top.Less:     tcell.StyleDefault.Foreground(tcell.ColorGreen).Bold(true),
}

// draw shows the screen.
func (t *terminal) draw(screen *top.Screen) {
	width, height := t.screen.Size()
	t.screen.Clear()
	for y, line := range screen.Lines(width, height) {
		x := 0
		for _, span := range line {
			rest := span.Text
			for rest != "" {
				var columns int
				rest, columns = t.screen.Put(x, y, rest, styles[span.Style])
				if columns == 0 { // a character that tcell does not draw
					break
				}
				x += columns
			}
		}
	}
	t.screen.Show()
}
