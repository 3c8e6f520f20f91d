package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// historyFlags are the flags of serve for the history.
type historyFlags struct {
	dir  string
	keep time.Duration
	size cli.Size
}

func (h *historyFlags) add(fs *pflag.FlagSet) {
	h.keep, h.size = history.DefaultKeep, history.DefaultMaxSize
	fs.StringVar(&h.dir, "history-dir", "", "keep a history in `DIR`, for report --from")
	fs.Var(cli.Seconds(&h.keep), "history", "keep it for `TIME`")
	fs.Var(&h.size, "history-size", "keep at most `SIZE` of it")
}

func (h *historyFlags) check(fs *pflag.FlagSet) error {
	switch {
	case h.dir == "" && (fs.Changed("history") || fs.Changed("history-size")):
		return cli.Misuse("--history and --history-size need --history-dir=DIR")
	case h.keep < time.Minute:
		return cli.Misuse("--history needs a time of at least a minute, such as 24h")
	case h.size < history.MinSize:
		return cli.Misuse(fmt.Sprintf("--history-size needs a size of at least %d MB", history.MinSize/1_000_000))
	}
	return nil
}

// open returns nil if there is to be no history.
func (h *historyFlags) open(log *slog.Logger) (*history.Store, error) {
	if h.dir == "" {
		return nil, nil
	}
	// A parent that does not exist is more likely a misspelt one, but for that of the default.
	if parent := filepath.Dir(filepath.Clean(h.dir)); filepath.Clean(h.dir) != cli.HistoryDir {
		if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("--history-dir=%s: directory %s does not exist: create it, or choose another", h.dir,
				parent)
		}
	}
	return history.Open(h.dir, &history.Options{Keep: h.keep, MaxSize: int64(h.size), Log: log})
}
