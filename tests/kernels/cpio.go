package main

import (
	"fmt"
	"io"
)

// A cpio writes an archive in the "newc" format, which a kernel unpacks as its first root file
// system (Documentation/driver-api/early-userspace/buffer-format.rst). The first error sticks and
// is returned by Close.
type cpio struct {
	w     io.Writer
	inode uint32
	err   error
}

// File types of st_mode (inode(7)).
const (
	modeDir  = 0o040000
	modeChar = 0o020000
	modeFile = 0o100000
)

// Dir adds a directory. Parents must come before what they contain.
func (c *cpio) Dir(name string) { c.entry(name, modeDir|0o755, nil, 0, 0) }

// File adds a regular file with the given permissions.
func (c *cpio) File(name string, perm uint32, data []byte) {
	c.entry(name, modeFile|perm, data, 0, 0)
}

// CharDevice adds a character device. Writing it into an archive needs no privilege, unlike
// mknod(2).
func (c *cpio) CharDevice(name string, major, minor uint32) {
	c.entry(name, modeChar|0o600, nil, major, minor)
}

// Close ends the archive. The underlying writer stays open.
func (c *cpio) Close() error {
	c.entry("TRAILER!!!", 0, nil, 0, 0)
	return c.err
}

// entry writes the header of 13 hexadecimal fields, the name with its NUL, and the data; name and
// data are each padded to 4 bytes. Owner and times stay 0: the same input gives the same archive.
func (c *cpio) entry(name string, mode uint32, data []byte, major, minor uint32) {
	if c.err != nil {
		return
	}
	c.inode++
	const headerSize = 6 + 13*8
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c.inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	c.write([]byte(header + name + "\x00" + padding(headerSize+len(name)+1)))
	c.write(data)
	c.write([]byte(padding(len(data))))
}

func (c *cpio) write(p []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(p)
	}
}

// padding is the number of bytes that aligns n to 4.
func padding(n int) string { return "\x00\x00\x00"[:-n&3] }
