package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

//go:embed input
var inputs embed.FS

//go:embed java
var drivers embed.FS

// A program is a real one of Debian's archive that no other test runs. It runs once, for some ten
// seconds.
type program struct {
	name      string
	packages  []string // packages of Debian
	collector string   // -XX:+Use…GC
	jars      []string // in /usr/share/java unless they are paths
	driver    string   // a class in java that runs it; "" if it has a main class of its own
	main      string
	// args may hold {dir}, a directory of the program's own with all of input, {sources}, of the
	// JDK's java.util, and {jars}.
	args  []string
	found bool // it ends with a status that says what it found, such as errors in its input
	short bool // what CI runs
}

// programs are of as many kinds as the archive has: compilers and checkers, four dynamic languages,
// a database with clients that wait for each other, machine learning, XML, and a program that reads
// class files.
var programs = []program{
	{
		name: "Ecj", packages: []string{"ecj"}, collector: "Parallel", jars: []string{"eclipse-jdt-core"},
		main: "org.eclipse.jdt.internal.compiler.batch.Main",
		args: []string{"-17", "-nowarn", "-proc:none", "-proceedOnError", "-d", "none", "-repeat", "4", "-log",
			"{dir}/ecj.log",
			"{sources}/java.base/java/util/concurrent", "{sources}/java.base/java/util/stream"},
		found: true, // it cannot see what the JDK does not export
	},
	{
		name: "Checkstyle", packages: []string{"checkstyle"}, collector: "G1",
		jars: []string{"checkstyle", "antlr4-runtime",
			"commons-lang3", "commons-beanutils", "commons-collections3", "guava", "commons-cli", "commons-logging",
			"picocli", "Saxon-HE", "reflections"},
		main: "com.puppycrawl.tools.checkstyle.Main",
		args: []string{"-c", "/sun_checks.xml", "-o", "{dir}/checkstyle.out",
			"{sources}/java.base/java/util/concurrent"},
		found: true,
	},
	{
		name: "Groovy", packages: []string{"groovy"}, collector: "Serial",
		jars: []string{"/usr/share/groovy/embeddable/groovy-all-2.4.21.jar"},
		main: "groovy.ui.GroovyMain", args: []string{"{dir}/groups.groovy", "60"},
	},
	{
		name: "Clojure", packages: []string{"clojure"}, collector: "G1",
		jars: []string{"clojure", "core.specs.alpha", "spec.alpha"},
		main: "clojure.main", args: []string{"{dir}/words.clj", "60"},
	},
	{
		name: "JRuby", packages: []string{"jruby"}, collector: "Parallel",
		jars: []string{"/usr/share/jruby/lib/jruby.jar"},
		main: "org.jruby.Main", args: []string{"{dir}/words.rb", "60"},
	},
	{
		name: "Rhino", packages: []string{"rhino", "librhino-java"}, collector: "Serial", jars: []string{"rhino"},
		main: "org.mozilla.javascript.tools.shell.Main", args: []string{"-opt", "9", "{dir}/tree.js", "60"},
		short: true,
	},
	{
		name: "ProGuard", packages: []string{"proguard-cli", "libsaxonhe-java"}, collector: "G1",
		jars: []string{"proguard"},
		main: "proguard.ProGuard", args: []string{"-injars", "/usr/share/java/Saxon-HE.jar", "-outjars",
			"{dir}/out.jar", "-ignorewarnings", "-dontwarn",
			"-dontnote", "-dontoptimize", "-dontpreverify", "-keep", "public class net.sf.saxon.** { public *; }"},
	},
	{
		name: "Saxon", packages: []string{"libsaxonhe-java"}, collector: "Shenandoah", jars: []string{"Saxon-HE"},
		main: "net.sf.saxon.Query", args: []string{"-q:{dir}/auction.xq", "-o:{dir}/auction.xml", "rounds=30"},
	},
	{
		name: "Derby", packages: []string{"libderby-java"}, collector: "G1", jars: []string{"derby"},
		driver: "DerbyClients", main: "DerbyClients", args: []string{"{dir}/bank", "6", "30000"},
	},
	{
		name: "Weka", packages: []string{"weka"}, collector: "Parallel",
		jars:   []string{"weka", "java-cup-0.11b-runtime"},
		driver: "WekaForest", main: "WekaForest", args: []string{"6000", "60"},
	},
}

// A prepared program can be started.
type prepared struct {
	program
	dir       string
	classpath []string
	args      []string
}

// prepare puts the program's input into dir, and finds its jars.
func (p program) prepare(ctx context.Context, jdk jvm.JDK, dir string) (r prepared, err error) {
	r = prepared{program: p, dir: dir}
	for _, jar := range p.jars {
		if !filepath.IsAbs(jar) {
			jar = filepath.Join("/usr/share/java", jar+".jar")
		}
		if _, err := os.Stat(jar); err != nil {
			return r, fmt.Errorf("%w: install Debian's %s", err, strings.Join(p.packages, " "))
		}
		r.classpath = append(r.classpath, jar)
	}
	files, err := fs.Sub(inputs, "input")
	if err != nil {
		return r, err
	}
	if err := os.CopyFS(dir, files); err != nil {
		return r, fmt.Errorf("write the program's input: %w", err)
	}
	sources := ""
	for _, arg := range p.args {
		if strings.Contains(arg, "{sources}") && sources == "" {
			if sources, err = suite.Sources(ctx, jdk); err != nil {
				return r, err
			}
		}
		r.args = append(r.args, strings.NewReplacer("{dir}", dir, "{sources}", sources).Replace(arg))
	}
	if p.driver != "" {
		java, err := fs.Sub(drivers, "java")
		if err != nil {
			return r, err
		}
		classes, err := jdk.Compile(ctx, jvm.Build{Sources: java, Only: []string{p.driver + ".java"},
			Release: jvm.MinVersion, Classpath: r.classpath})
		if err != nil {
			return r, err
		}
		r.classpath = append(r.classpath, classes)
	}
	return r, nil
}

func (p prepared) flags() []string {
	return []string{"-XX:+Use" + p.collector + "GC", "-Xmx512m", "-Djava.awt.headless=true"}
}

// settings are JFR's.
func (p prepared) settings() string { return filepath.Join(p.dir, settingsName) }

// beginning is what the JVM allocates until it begins with a program: of one that has nothing to
// do.
func (p prepared) beginning(ctx context.Context, jdk jvm.JDK) (heapLog, error) {
	dir, err := os.MkdirTemp(p.dir, "beginning-")
	if err != nil {
		return heapLog{}, fmt.Errorf("create a directory: %w", err)
	}
	line := append(p.flags(), logFlags(dir, p.settings())...)
	if output, err := exec.CommandContext(ctx, jdk.Java(), append(line, "-version")...).CombinedOutput(); err != nil {
		return heapLog{}, fmt.Errorf("java -version: %w\n%s", err, output)
	}
	log, err := os.Open(filepath.Join(dir, gcLogName))
	if err != nil {
		return heapLog{}, err
	}
	defer log.Close()
	return readHeapLog(log)
}

// command is what starts the program once it reads a line, as the same process.
func (p prepared) command(jdk jvm.JDK, flags ...string) []string {
	line := append([]string{"sh", "-c", `read go; exec "$0" "$@"`, jdk.Java()}, p.flags()...)
	line = append(line, flags...)
	line = append(line, "-cp", strings.Join(p.classpath, ":"), p.main)
	return append(line, p.args...)
}
