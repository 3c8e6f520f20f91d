package proc

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Launch is how a process was started and where it runs, in its own words. Names are made of it.
type Launch struct {
	Executable  string   // path, as seen from the process's root
	Arguments   []string // where the program is java, with the content of argument files in their place
	Environment []string // NAME=VALUE
	Directory   string   // working directory, as seen from the process's root
	Hostname    string   // content of /etc/hostname in the process's root
	Refused     []error  // errors of the files above that are there and were not opened, see Refused
}

// variable returns the value of an environment variable.
func (l *Launch) variable(name string) string {
	for _, v := range l.Environment {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// IsJava reports whether a program is a launcher of JVMs, by its path.
func IsJava(executable string) bool {
	switch path.Base(strings.TrimSuffix(executable, " (deleted)")) {
	case "java", "java.real", "jsvc", "jsvc.exec":
		return true
	}
	return false
}

// java reports whether the process is a JVM, as far as its name says. A first argument may be
// anything.
func (l *Launch) java() bool {
	return len(l.Arguments) > 0 && (IsJava(l.Arguments[0]) || IsJava(l.Executable))
}

// An Application is what a JVM runs. Both names are printable and bounded; they do not change with
// the version of what runs.
type Application struct {
	// Name is what people call it: the service name of OpenTelemetry or Spring, the jar without
	// directory, version and suffix, or the main class; "" if there is none of these.
	Name string
	// Main is the main class, or the jar without directory, version and suffix.
	Main string
	// Generic says that Name is that of a launcher or the directory that it runs in, which many
	// services share: the name of a unit or container is better.
	Generic bool
}

// ApplicationOf returns the application of a JVM. It is zero of other processes.
func ApplicationOf(l *Launch) Application {
	if !l.java() {
		return Application{}
	}
	c := parseJava(l)
	a := Application{Main: c.main}
	if c.file && c.main != "" {
		a.Main = withoutVersion(path.Base(c.main))
	}
	a.Main = printable([]byte(a.Main))
	if name := c.given(l); name != "" {
		a.Name = printable([]byte(name))
		return a
	}
	a.Name = a.Main
	if launchers[a.Main] || strings.HasPrefix(a.Main, "org.springframework.boot.loader.") {
		a.Generic = true
		directory := directoryName(c.property("catalina.base", "jetty.base", "jboss.server.base.dir"))
		if directory == "" {
			directory = directoryName(l.variable("CATALINA_BASE"))
		}
		if directory == "" {
			directory = directoryName(l.Directory)
		}
		switch {
		case directory != "":
			a.Name = printable([]byte(directory))
		case !c.file:
			a.Name = a.Main[strings.LastIndexByte(a.Main, '.')+1:]
		}
	}
	return a
}

// launchers start the application that their configuration or archive names. Their own names, and
// file names that come from templates, distinguish nothing.
var launchers = map[string]bool{
	"app": true, "application": true, "main": true, "Main": true, "server": true, "service": true, "run": true,
	"start": true, "ROOT": true, "launcher": true,
	"quarkus-run": true, "jboss-modules": true, "io.quarkus.bootstrap.runner.QuarkusEntryPoint": true,
	"org.apache.catalina.startup.Bootstrap": true, "org.apache.catalina.startup.Tomcat": true,
	"org.eclipse.jetty.start.Main": true, "org.jboss.modules.Main": true,
	"org.codehaus.plexus.classworlds.launcher.Launcher": true,
	"org.codehaus.classworlds.Launcher":                 true, "org.tanukisoftware.wrapper.WrapperSimpleApp": true,
	"org.apache.karaf.main.Main": true,
}

// directoryName is what a directory is called, without version, or the nearest one around it whose
// name is not that of every application's.
func directoryName(dir string) string {
	for dir = path.Clean("/" + dir); dir != "/"; dir = path.Dir(dir) {
		switch name := withoutVersion(path.Base(dir)); name {
		case "app", "application", "apps", "base", "bin", "build", "current", "data", "deploy", "deployments", "dist",
			"home", "lib", "libs", "local", "opt",
			"release", "releases", "root", "run", "server", "service", "services", "share", "srv", "standalone",
			"target", "tmp", "usr", "var", "work", "workspace":
		default:
			if strings.Trim(name, "0123456789.-_") != "" {
				return name
			}
		}
	}
	return ""
}

// version matches the version at the end of the name of a jar, and what build tools put behind it.
var version = regexp.MustCompile(`^(.*?[^-_.])[-_]v?[0-9]+(?:\.[0-9]+)*` +
	`(?:[-_.+]?(?i:snapshot|release|final|ga|rc|cr|sp|m|alpha|beta|b|jre|java|jdk)[-.]?[0-9]*|[-_.+](?i:all|fat|uber|shaded|exec|boot|bootable|standalone|runner|plain|jar-with-dependencies|[0-9]+|g?[0-9a-f]{7,40}))*$`)

// withoutVersion is the name of a file without the suffix of an archive and without its version, so
// that it stays the same from one release to the next.
func withoutVersion(name string) string {
	for _, suffix := range []string{".jar", ".war", ".ear"} {
		name = strings.TrimSuffix(name, suffix)
	}
	const longest = 512 // file names end at 255 bytes
	if len(name) <= longest {
		if m := version.FindStringSubmatch(name); m != nil {
			return m[1]
		}
	}
	return name
}

// A javaCommand is a command line of java, as far as names depend on it.
type javaCommand struct {
	main       string // class or file
	file       bool
	properties map[string]string
	arguments  []string // arguments of the application
}

// maxOptions bounds the words of a variable with options.
const maxOptions = 1024

// parseJava reads a command line of java or jsvc, and the variables with options for it.
func parseJava(l *Launch) *javaCommand {
	c := &javaCommand{properties: map[string]string{}}
	define := func(words []string) {
		for _, word := range words {
			c.define(word)
		}
	}
	// The VM reads JAVA_TOOL_OPTIONS before the command line, and the launcher puts
	// JDK_JAVA_OPTIONS before it. _JAVA_OPTIONS come last.
	define(splitOptions(l.variable("JAVA_TOOL_OPTIONS"), maxOptions))
	define(splitOptions(l.variable("JDK_JAVA_OPTIONS"), maxOptions))
	c.parse(l.Arguments)
	define(splitOptions(l.variable("_JAVA_OPTIONS"), maxOptions))
	return c
}

// define notes a system property.
func (c *javaCommand) define(arg string) {
	if definition, ok := strings.CutPrefix(arg, "-D"); ok {
		name, value, _ := strings.Cut(definition, "=")
		c.properties[name] = value
	}
}

// optionsWithValue are the options of the launchers that take the next argument, apart from those
// that begin with two dashes and have no equals sign: those of java(1) and, from -jvm on, of
// jsvc(1).
var optionsWithValue = map[string]bool{
	"-cp": true, "-classpath": true, "-p": true,
	"-jvm": true, "-home": true, "-java-home": true, "-user": true, "-cwd": true, "-outfile": true, "-errfile": true,
	"-pidfile": true, "-wait": true, "-restarts": true,
	"-umask": true, "-procname": true,
}

// flagsWithoutValue are the options with two dashes that take none.
var flagsWithoutValue = map[string]bool{
	"--enable-preview": true, "--dry-run": true, "--list-modules": true, "--validate-modules": true, "--version": true,
	"--show-version":           true,
	"--show-module-resolution": true, "--help": true, "--help-extra": true, "--disable-@files": true,
}

// takesValue reports whether an option takes the next argument.
func takesValue(option string) bool {
	return optionsWithValue[option] || strings.HasPrefix(option, "--") && !strings.Contains(option, "=") &&
		!flagsWithoutValue[option]
}

func (c *javaCommand) parse(arguments []string) {
	for i := 1; i < len(arguments); i++ {
		next := ""
		if i+1 < len(arguments) {
			next = arguments[i+1]
		}
		switch arg := arguments[i]; {
		case strings.HasPrefix(arg, "-D"):
			c.define(arg)
		case arg == "-jar":
			c.main, c.file, i = next, true, i+1
		case arg == "-m" || arg == "--module":
			c.main, i = mainOfModule(next), i+1
		case strings.HasPrefix(arg, "--module="):
			c.main = mainOfModule(strings.TrimPrefix(arg, "--module="))
		case takesValue(arg):
			i++
		case strings.HasPrefix(arg, "-"), strings.HasPrefix(arg, "@"), arg == "":
		case strings.HasSuffix(arg, ".java"): // source file mode
			c.main = strings.TrimSuffix(path.Base(arg), ".java")
		default:
			c.main = strings.ReplaceAll(arg, "/", ".")
		}
		if c.main != "" {
			c.arguments = arguments[min(i+1, len(arguments)):]
			return
		}
	}
}

// mainOfModule is the main class in MODULE/CLASS, or else the module.
func mainOfModule(arg string) string {
	module, class, _ := strings.Cut(arg, "/")
	if class == "" {
		return module
	}
	return class
}

// property returns the first of these system properties that has a value.
func (c *javaCommand) property(names ...string) string {
	for _, name := range names {
		if value := c.properties[name]; value != "" {
			return value
		}
	}
	return ""
}

// given is the name that whoever runs the application gave it, for telemetry or as its
// configuration. A property of OpenTelemetry's Java agent precedes the variable of the same
// meaning, and an argument of Spring's precedes both.
func (c *javaCommand) given(l *Launch) string {
	if names := c.allGiven(l); len(names) > 0 {
		return names[0]
	}
	return ""
}

// allGiven are all names that it was given, in that order.
func (c *javaCommand) allGiven(l *Launch) (names []string) {
	spring := ""
	for _, arg := range c.arguments {
		if value, ok := strings.CutPrefix(arg, "--spring.application.name="); ok {
			spring = value
		}
	}
	for _, name := range []string{
		c.property("otel.service.name"), l.variable("OTEL_SERVICE_NAME"),
		attribute(c.property("otel.resource.attributes"), "service.name"),
		attribute(l.variable("OTEL_RESOURCE_ATTRIBUTES"), "service.name"),
		spring, c.property("spring.application.name"), l.variable("SPRING_APPLICATION_NAME"),
	} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// ApplicationNames are all names that a JVM's application was given, for telemetry or as its
// configuration, and its main class or jar. Whoever started it may know any of them. They are
// printable and bounded.
func ApplicationNames(l *Launch) (names []string) {
	if !l.java() {
		return nil
	}
	for _, name := range append(parseJava(l).allGiven(l), ApplicationOf(l).Main) {
		if name = printable([]byte(name)); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// attribute returns the value of a key in a list KEY=VALUE,..., the form of
// OTEL_RESOURCE_ATTRIBUTES.
func attribute(list, key string) string {
	for pair := range strings.SplitSeq(list, ",") {
		if name, value, ok := strings.Cut(pair, "="); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// splitOptions splits the content of an argument file or of a variable with options into at most so
// many words. Quotes keep spaces in a word, a backslash in quotes keeps the next character, and #
// begins a comment where a word could begin.
func splitOptions(text string, most int) (words []string) {
	var word strings.Builder
	inWord, quote, comment := false, byte(0), false
	end := func() {
		if inWord {
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}
	for i := 0; i < len(text) && len(words) < most; i++ {
		switch c := text[i]; {
		case comment:
			comment = c != '\n'
		case quote != 0 && c == '\\' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
		case c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, inWord = c, true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f':
			end()
		case c == '#' && !inWord:
			comment = true
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	if len(words) < most {
		end()
	}
	return words
}
