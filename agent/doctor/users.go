package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxShownUsers is how many users a detail names.
const maxShownUsers = 5

// Ids of people, as distributions assign them (UID_MIN and UID_MAX of login.defs), without
// nobody's.
const firstUser, lastUser = 1000, 60000

// noLoginID is /proc/PID/loginuid of processes that belong to no login.
const noLoginID = "4294967295"

// checkUsers reports who else can log in: every local user can read what serve shows on a loopback
// address.
func checkUsers(_ context.Context, env *Env) Result {
	users := loggedIn(env)
	passwd, err := os.ReadFile(env.Passwd)
	for line := range strings.Lines(string(passwd)) {
		fields := strings.Split(strings.TrimSpace(line), ":") // passwd(5)
		if len(fields) != 7 {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		shell := filepath.Base(fields[6])
		if err == nil && uid >= firstUser && uid < lastUser && shell != "nologin" && shell != "false" {
			users = append(users, fields[0])
		}
	}
	slices.Sort(users)
	users = slices.Compact(users)
	if len(users) == 0 {
		if err != nil {
			return Result{Info, "cannot find out who can log in: " + err.Error(),
				"Every local user can read profiles from the loopback address of serve.", ""}
		}
		return ok("nobody but root logs in")
	}
	more := ""
	if n := len(users) - maxShownUsers; n > 0 {
		users, more = users[:maxShownUsers], fmt.Sprintf(" and %d more", n)
	}
	return Result{Info, "can log in, apart from root: " + strings.Join(users, ", ") + more,
		"Every local user can read profiles from the loopback address of serve.",
		"If you do not trust them all: vmprof-agent serve --listen unix:/run/vmprof-agent/http.sock " +
			"--web.socket-group=GROUP."}
}

// loggedIn are the users other than root to whose logins processes belong: the list of accounts
// lacks those of directory services.
func loggedIn(env *Env) (names []string) {
	pids, err := env.Proc.PIDs()
	if err != nil {
		return nil
	}
	seen := map[string]bool{}
	for _, pid := range pids {
		text, err := os.ReadFile(filepath.Join(env.Proc.String(), strconv.Itoa(pid), "loginuid"))
		id := strings.TrimSpace(string(text))
		if err != nil || id == noLoginID || seen[id] {
			continue
		}
		seen[id] = true
		if uid, err := strconv.ParseUint(id, 10, 32); err == nil && uid >= firstUser {
			names = append(names, env.UserName(uint32(uid)))
		}
	}
	return names
}
