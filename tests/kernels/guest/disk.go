package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/kernels/wire"
)

// enterDisk makes the disk the root, instead of the initramfs.
func enterDisk() error {
	if err := unix.Mount("devtmpfs", "/dev", "devtmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /dev to find the disk: %w", err)
	}
	// The kernel finds disks while init runs already.
	var err error
	for range 600 {
		if err = unix.Mount(wire.DiskDevice, wire.DiskDir, "ext4", 0, ""); err == nil || !errors.Is(err, unix.ENOENT) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	return errors.Join(os.Chdir(wire.DiskDir), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."),
		os.Chdir("/"))
}

// prepare does what distributions do at boot: the loopback interface is up, and control groups can
// have a quota.
func prepare() error {
	// Not every hierarchy of version 2 offers this controller.
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu"), 0); err != nil {
		return fmt.Errorf("let control groups have a quota: %w", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("start the loopback interface: %w", err)
	}
	return nil
}
