package suite

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
)

// A Program is one program of the suite.
type Program struct {
	Name     string   // its class in java/suite
	Packages []string // packages of Debian
	Jars     []string // patterns in /usr/share/java, without .jar; the first one is the program's own

	// Warmup is how many iterations it takes until they cost about the same.
	Warmup int

	inputs   []string // files of java/input
	helpers  []string // classes of java/suite besides those that all programs use
	readsJDK bool     // the sources of the JDK are its input

	// checksums of an iteration, by the file name of the first jar: they depend on the program's
	// version.
	checksums map[string]uint64

	// small are the system properties with which an iteration makes a few million calls, all of
	// which can be counted. Empty if it does so without.
	small []string
}

// Small reports whether the program has a smaller input besides its usual one.
func (p Program) Small() bool { return len(p.small) > 0 }

// harness is what every program needs.
var harness = []string{"Main", "Program", "Checksum", "Input"}

// Programs returns the suite.
func Programs() []Program {
	return []Program{
		{
			Name:      "Xalan",
			Packages:  []string{"libxalan2-java", "libxerces2-java"},
			Jars:      []string{"xalan2", "serializer", "xercesImpl"},
			Warmup:    25,
			inputs:    []string{"report.xsl"},
			helpers:   []string{"AuctionSite"},
			checksums: map[string]uint64{"xalan2-2.7.2.jar": 0xf11f5de811a15385},
			small:     []string{"-Dsuite.items=100"},
		},
		{
			Name:      "Xerces",
			Packages:  []string{"libxerces2-java"},
			Jars:      []string{"xercesImpl"},
			Warmup:    30,
			helpers:   []string{"AuctionSite"},
			checksums: map[string]uint64{"xercesImpl-2.12.0.jar": 0x68941379203645fa},
			small:     []string{"-Dsuite.items=100"},
		},
		{
			Name:      "Jython",
			Packages:  []string{"jython"},
			Jars:      []string{"jython"},
			Warmup:    40,
			inputs:    []string{"bench.py"},
			checksums: map[string]uint64{"jython-2.7.3.jar": 0x126eb673},
			small:     []string{"-Dsuite.items=1000"},
		},
		{
			Name:      "H2",
			Packages:  []string{"libh2-java"},
			Jars:      []string{"h2"},
			Warmup:    30,
			helpers:   []string{"H2Client"},
			checksums: map[string]uint64{"h2-2.1.214.jar": 0xc848c5d3b1bacb04},
		},
		{
			Name:     "Luindex",
			Packages: []string{"liblucene8-java", "openjdk-17-source"},
			Jars:     []string{"lucene-core-8*", "lucene-analyzers-common-8*"},
			Warmup:   10,
			readsJDK: true,
			small:    []string{"-Dsuite.tree=java.base/java/util/regex"},
		},
		{
			Name:      "Scalac",
			Packages:  []string{"scala"},
			Jars:      []string{"scala-compiler", "scala-library", "scala-reflect", "scala-xml_2.11"},
			Warmup:    12,
			inputs:    []string{"bench.scala", "small.scala"},
			checksums: map[string]uint64{"scala-compiler-2.11.12.jar": 0xba21a8d3f5d533bb},
			small:     []string{"-Dsuite.source=small.scala"},
		},
		{
			Name:     "Javac",
			Packages: []string{"openjdk-17-source"},
			Warmup:   6,
			readsJDK: true,
		},
		{
			Name:   "Work",
			Warmup: 10,
			small:  []string{"-Dsuite.items=20"},
		},
	}
}

func find(name string) (Program, error) {
	programs := Programs()
	i := slices.IndexFunc(programs, func(p Program) bool { return p.Name == name })
	if i < 0 {
		return Program{}, fmt.Errorf("no program %q in the suite", name)
	}
	return programs[i], nil
}

// files returns the program's part of the embedded sources.
func (p Program) files() []string {
	var files []string
	for _, class := range slices.Concat(harness, p.helpers, []string{p.Name}) {
		files = append(files, path.Join("suite", class+".java"))
	}
	for _, input := range p.inputs {
		files = append(files, path.Join("input", input))
	}
	return files
}

// knownChecksum returns what an iteration of the installed version must give, if that version is
// known.
func (p Program) knownChecksum() (checksum uint64, known bool) {
	if len(p.Jars) == 0 {
		return 0, false
	}
	path, err := jar(p.Jars[0])
	if err != nil {
		return 0, false
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return 0, false
	}
	checksum, known = p.checksums[filepath.Base(path)]
	return checksum, known
}
