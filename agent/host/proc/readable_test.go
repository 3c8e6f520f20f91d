package proc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// A process does not learn by its name what its user may not read, though the agent may.
func TestReadRegularAsUser(t *testing.T) {
	root, dir := fakeRoot(t)
	fakeStatus(t, root, os.Getuid()+1, os.Getgid()+1)
	must(t, os.Mkdir(filepath.Join(dir, "open"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "open/readable"), []byte("text"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "open/secret"), []byte("text"), 0o640))
	var refused []error
	if got := expand(root.launchFiles(1, &refused), "/", []string{"java", "@/open/readable", "@/open/secret",
		"@/open/missing"}); len(got) != 2 || got[1] != "text" {
		t.Errorf("arguments %q", got)
	}
	if len(refused) != 1 || !errors.Is(refused[0], ErrNotOfUser) {
		t.Errorf("refused: %v, want the secret file", refused)
	}
}

// Whoever starts a set-uid program chooses its arguments: it gets what everybody may read.
func TestReadRegularAsSetUID(t *testing.T) {
	root, dir := fakeRoot(t)
	must(t, os.WriteFile(filepath.Join(dir, "readable"), []byte("text"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "private"), []byte("text"), 0o600))
	for ids, want := range map[string]error{fmt.Sprintf("%d %[1]d %[1]d %[1]d", os.Getuid()): nil,
		"1000 0 0 0": ErrNotOfUser, "1000 1000 0 1000": ErrNotOfUser} {
		must(t, os.WriteFile(filepath.Join(string(root), "1", "status"),
			fmt.Appendf(nil, "Name:\tjava\nTgid:\t1\nUid:\t%s\nGid:\t0 0 0 0\nNSpid:\t1\n", ids), 0o644))
		if text, err := root.readRegular(1, "/private", 100); !errors.Is(err, want) || want == nil &&
			string(text) != "text" {
			t.Errorf("ids %s: %q, %v, want %v", ids, text, err, want)
		}
		if text, err := root.readRegular(1, "/readable", 100); err != nil || string(text) != "text" {
			t.Errorf("ids %s: %q, %v", ids, text, err)
		}
	}
}

// The agent opens for a process what the kernel opens for it, and nothing else.
func TestOpenFileAsTheKernel(t *testing.T) {
	needs.Root(t, "processes of other users")
	const owner, member, stranger, group = 4001, 4002, 4003, 4100
	dir, err := os.MkdirTemp("", "readable-*") // others can enter its directory
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	var paths []string
	file := func(name string, uid, gid int, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte("text"), 0o600))
		must(t, os.Chown(path, uid, gid))
		must(t, os.Chmod(path, mode))
		paths = append(paths, path)
		return path
	}
	link := func(to, name string) string {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.Symlink(to, path))
		paths = append(paths, path)
		return path
	}
	for _, mode := range []os.FileMode{0o644, 0o640, 0o600, 0o604, 0o444, 0o000, 0o040, 0o711} {
		file(fmt.Sprintf("mode-%o", mode), owner, group, mode)
		file(fmt.Sprintf("roots-%o", mode), 0, 0, mode)
		closed := file(fmt.Sprintf("in-%o/readable", mode), owner, group, 0o644)
		must(t, os.Chown(filepath.Dir(closed), owner, group))
		must(t, os.Chmod(filepath.Dir(closed), mode|0o100))
		search := file(fmt.Sprintf("search-%o/readable", mode), owner, group, 0o644)
		must(t, os.Chown(filepath.Dir(search), owner, group))
		must(t, os.Chmod(filepath.Dir(search), mode>>2))
	}
	private := file("roots/private/file", 0, 0, 0o644)
	must(t, os.Chmod(filepath.Dir(private), 0o700))
	secret := file("secret", 0, 0, 0o600)
	file("readable", 0, 0, 0o644)
	link(secret, "link-to-secret")
	link(private, "link-into-private")
	link("readable", "link-to-readable")
	link("roots/private/../../readable", "link-through-private")
	link("link-to-readable", "link-to-link")
	link(dir, "link-to-directory")
	paths = paths[:len(paths)-1] // the kernel opens directories, too
	link("loop", "loop")
	link("missing", "link-to-missing")
	paths = append(paths, filepath.Join(dir, "link-to-directory/readable"),
		filepath.Join(dir, "link-to-directory/../"+filepath.Base(dir)+"/readable"),
		filepath.Join(dir, "readable")+"/", dir+"/readable/../readable", dir+"/roots/../readable", dir+
			"/roots/private/../../readable")
	if err := os.Link(secret, filepath.Join(dir, "hard")); err == nil {
		paths = append(paths, filepath.Join(dir, "hard"))
	}
	hasLists := true
	for name, entries := range map[string][]accessEntry{
		"user refused":  {{1, 6, 0}, {aclUser, 0, stranger}, {aclGroupObj, 4, 0}, {aclMask, 4, 0}, {aclOther, 4, 0}},
		"user allowed":  {{1, 6, 0}, {aclUser, 4, stranger}, {aclGroupObj, 0, 0}, {aclMask, 4, 0}, {aclOther, 0, 0}},
		"user masked":   {{1, 6, 0}, {aclUser, 4, stranger}, {aclGroupObj, 4, 0}, {aclMask, 1, 0}, {aclOther, 4, 0}},
		"group refused": {{1, 6, 0}, {aclGroupObj, 4, 0}, {aclGroup, 0, group}, {aclMask, 4, 0}, {aclOther, 4, 0}},
		"group allowed": {{1, 6, 0}, {aclGroupObj, 0, 0}, {aclGroup, 4, group}, {aclMask, 4, 0}, {aclOther, 0, 0}},
	} {
		path := file("list "+name, owner, 0, 0o644)
		list := binary.LittleEndian.AppendUint32(nil, 2)
		for _, e := range entries {
			id := e.id
			if e.tag != aclUser && e.tag != aclGroup {
				id = 1<<32 - 1
			}
			list = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(list, e.tag), e.what), id)
		}
		if err := unix.Setxattr(path, "system.posix_acl_access", list, 0); err != nil {
			hasLists = false
		}
	}
	if !hasLists {
		t.Log("the file system has no access lists")
	}
	must(t, os.Mkdir(filepath.Join(dir, "sticky"), 0o777))
	must(t, os.Chmod(filepath.Join(dir, "sticky"), 0o777|os.ModeSticky))
	for _, uid := range []int{0, owner, stranger} {
		path := link("../readable", fmt.Sprintf("sticky/link-of-%d", uid))
		must(t, os.Lchown(path, uid, group))
	}
	protected, _ := os.ReadFile("/proc/sys/fs/protected_symlinks")

	for name, as := range map[string]syscall.Credential{
		"root": {}, "owner": {Uid: owner, Gid: owner}, "member": {Uid: member, Gid: member, Groups: []uint32{group}},
		"member by its group": {Uid: member, Gid: group}, "stranger": {Uid: stranger, Gid: stranger},
	} {
		t.Run(name, func(t *testing.T) {
			const script = `for f; do if (exec 3<"$f") 2>/dev/null; then echo opened; else echo refused; fi; done; exec sleep 100`
			command := exec.Command("sh", append([]string{"-c", script, "sh"}, paths...)...)
			command.SysProcAttr = &syscall.SysProcAttr{Credential: &as}
			out, err := command.StdoutPipe()
			must(t, err)
			must(t, command.Start())
			defer command.Wait()
			defer command.Process.Kill()
			lines := bufio.NewScanner(out)
			for _, path := range paths {
				if !lines.Scan() {
					t.Fatalf("the process ended: %v", lines.Err())
				}
				f, err := Root("").OpenFile(command.Process.Pid, path, 100)
				if err == nil {
					f.Close()
				}
				kernel := lines.Text() == "opened"
				if strings.Contains(path, "/sticky/") && strings.TrimSpace(string(protected)) != "1" {
					kernel = err == nil // the agent follows the rule that the kernel has if that is 1
				}
				if (err == nil) != kernel {
					t.Errorf("%s: %v, but the kernel %s it", strings.TrimPrefix(path, dir), err, lines.Text())
				}
			}
		})
	}
}

// A program that its user may execute but not read has no names, and links into directories that
// others cannot enter have none of them.
func TestOpenMappedAsUser(t *testing.T) {
	needs.Root(t, "processes of other users")
	dir, err := os.MkdirTemp("", "readable-*")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	text, err := os.ReadFile("/bin/sleep")
	must(t, err)
	for mode, want := range map[os.FileMode]error{0o755: nil, 0o711: ErrNotOfUser} {
		program := filepath.Join(dir, fmt.Sprintf("sleep-%o", mode))
		must(t, os.WriteFile(program, text, 0o700))
		must(t, os.Chmod(program, mode))
		command := exec.Command(program, "100")
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4003, Gid: 4003}}
		must(t, command.Start())
		defer command.Wait()
		defer command.Process.Kill()
		maps, err := Root("").Maps(command.Process.Pid, func(m *Mapping) bool { return m.Exec && m.Path == program })
		if err != nil || len(maps) != 1 {
			t.Fatalf("%v, %v", maps, err)
		}
		f, err := Root("").OpenMapped(command.Process.Pid, &maps[0], 1<<20)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("mode %o: %v, want %v", mode, err, want)
		}
	}
}

// What a file of procfs contains depends on who opens it.
func TestOpenFileOfProcfs(t *testing.T) {
	if f, err := Root("").OpenFile(os.Getpid(), "/proc/uptime", 100); !errors.Is(err, ErrNotOfUser) {
		t.Errorf("%v, %v", f, err)
	}
}

// The agent's own files are those that everybody may read.
func TestOpenPublic(t *testing.T) {
	dir, err := os.MkdirTemp("", "readable-*")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	for mode, want := range map[os.FileMode]error{0o644: nil, 0o640: ErrNotOfUser} {
		path := filepath.Join(dir, fmt.Sprint(mode))
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Chmod(path, mode))
		f, err := Root("").OpenPublic(path, 100)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("mode %o: %v, want %v", mode, err, want)
		}
	}
}
