package serve

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// socketFlags say who may connect to the Unix socket of serve.
type socketFlags struct {
	owner, group, mode string
	access             socketfile.Access
}

func (s *socketFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&s.owner, "web.socket-owner", "", "give the socket of unix:PATH to `USER`")
	fs.StringVar(&s.group, "web.socket-group", "", "give it to `GROUP`")
	fs.StringVar(&s.mode, "web.socket-mode", "0660", "set its permissions to `MODE`")
}

// check reads the flags, which need a Unix socket.
func (s *socketFlags) check(fs *pflag.FlagSet, listen string) error {
	s.access = socketfile.Access{UID: -1, GID: -1}
	for _, name := range []string{"web.socket-owner", "web.socket-group", "web.socket-mode"} {
		if fs.Changed(name) && !strings.HasPrefix(listen, listener.SocketPrefix) {
			return cli.Misuse(fmt.Sprintf("--%s needs --web.listen-address=unix:PATH", name))
		}
	}
	mode, err := strconv.ParseUint(s.mode, 8, 32)
	if err != nil || mode > 0o777 {
		return cli.Misuse(fmt.Sprintf("--web.socket-mode=%s is not a mode such as 0660", s.mode))
	}
	s.access.Mode = uint32(mode)
	if u, err := user.Lookup(s.owner); err == nil {
		s.owner = u.Uid
	}
	if g, err := user.LookupGroup(s.group); err == nil {
		s.group = g.Gid
	}
	return errors.Join(readID("web.socket-owner", s.owner, &s.access.UID),
		readID("web.socket-group", s.group, &s.access.GID))
}

// readID reads the number of a user or a group; "" leaves it.
func readID(flag, text string, id *int) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return cli.Misuse(fmt.Sprintf("--%s=%s: no such user or group on this machine", flag, text))
	}
	*id = int(n)
	return nil
}
