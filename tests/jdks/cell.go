package main

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// shortVersions are what CI tries: two long-term versions that the other tests do not run on.
var shortVersions = []string{"11", "21"}

// A setup is how a JVM is run.
type setup struct {
	name string
	// flags are the JVM's in that version of the JDK, nil if the version has nothing of the kind.
	flags func(version int) []string
	// archive says that the JVM first writes what it then starts from.
	archive func(version int) archive
}

// An archive is how a JVM writes an archive, in runs that only start and end, and how it starts
// from it.
type archive struct {
	writes [][]string // FILE stands for the archive's path
	reads  []string
}

// plain is the name of the setup without any option.
const plain = "as it comes"

const (
	experimental = "-XX:+UnlockExperimentalVMOptions"
	file         = "FILE"
)

// always are flags that every version has.
func always(flags ...string) func(int) []string {
	return func(int) []string { return append([]string{}, flags...) }
}

// since are flags that versions from first to last have.
func since(first, last int, flags ...string) func(int) []string {
	return func(version int) []string {
		if version < first || version > last {
			return nil
		}
		return flags
	}
}

// newest is later than every version.
const newest = 1 << 20

// Some JDKs of a version have a collector and others have none, so a JVM that refuses its flags is
// taken for one of these.
var setups = []setup{
	{name: plain, flags: always()},
	{name: "Serial", flags: always("-XX:+UseSerialGC")},
	{name: "Parallel", flags: always("-XX:+UseParallelGC")},
	{name: "ZGC", flags: func(version int) []string {
		switch {
		case version < 21:
			return since(11, newest, experimental, "-XX:+UseZGC")(version)
		case version < 24:
			return []string{"-XX:+UseZGC", "-XX:-ZGenerational"}
		}
		return nil
	}},
	{name: "generational ZGC", flags: func(version int) []string {
		switch {
		case version < 21:
			return nil
		case version < 23:
			return []string{"-XX:+UseZGC", "-XX:+ZGenerational"}
		}
		return []string{"-XX:+UseZGC"}
	}},
	{name: "Shenandoah", flags: always(experimental, "-XX:+UseShenandoahGC")},
	{name: "generational Shenandoah", flags: since(24, newest, experimental, "-XX:+UseShenandoahGC",
		"-XX:ShenandoahGCMode=generational")},
	{name: "Epsilon", flags: since(11, newest, experimental, "-XX:+UseEpsilonGC")},
	{name: "compact headers", flags: since(24, newest, experimental, "-XX:+UseCompactObjectHeaders")},
	{name: "no compressed references", flags: always("-XX:-UseCompressedOops")},
	{name: "no compressed class pointers", flags: always("-XX:-UseCompressedClassPointers")},
	{name: "AppCDS", archive: func(version int) archive {
		if version < 11 {
			return archive{}
		}
		if version < 13 {
			return archive{writes: [][]string{
				{"-XX:DumpLoadedClassList=FILE.list"}, {"-Xshare:dump", "-XX:SharedClassListFile=FILE.list",
					"-XX:SharedArchiveFile=FILE"},
			}, reads: []string{"-Xshare:on", "-XX:SharedArchiveFile=FILE"}}
		}
		return archive{writes: [][]string{{"-XX:ArchiveClassesAtExit=FILE"}},
			reads: []string{"-Xshare:on", "-XX:SharedArchiveFile=FILE"}}
	}},
	{name: "AOT cache", archive: func(version int) archive {
		if version < 25 {
			return archive{}
		}
		return archive{writes: [][]string{{"-XX:AOTCacheOutput=FILE"}},
			reads: []string{"-XX:AOTMode=on", "-XX:AOTCache=FILE"}}
	}},
	{name: "code cache of 4 MB", flags: always("-XX:ReservedCodeCacheSize=4m")},
	{name: "C1 only", flags: always("-XX:TieredStopAtLevel=1")},
	{name: "C2 only", flags: always("-XX:-TieredCompilation")},
	{name: "interpreter only", flags: always("-Xint")},
	{name: "CMS", flags: since(0, 13, "-XX:+UseConcMarkSweepGC")},
	{name: "G1", flags: always("-XX:+UseG1GC")},
}

// A cell is a JDK in a setup.
type cell struct {
	jdk jvm.JDK
	setup
}

// String is the cell's name: what -run is matched with.
func (c cell) String() string { return fmt.Sprintf("%v, %s", c.jdk, c.name) }

// exists says that this version of the JDK should be able to run so.
func (c cell) exists() bool {
	if c.archive != nil {
		return c.archive(c.jdk.Version).reads != nil
	}
	return c.flags(c.jdk.Version) != nil
}

// plan returns all cells, those of JDKs as they come first; for the short form only these.
func plan(jdks []jvm.JDK, o options) (cells []cell) {
	for _, s := range setups {
		for _, jdk := range jdks {
			c := cell{jdk: jdk, setup: s}
			if c.exists() && (!o.Short || s.name == plain) {
				cells = append(cells, c)
			}
		}
	}
	return cells
}
