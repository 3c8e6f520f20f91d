package sink

import (
	"regexp"
	"strings"
)

// A layer is the part of a program that a method belongs to.
type layer uint8

const (
	appLayer layer = iota
	jdkLayer
	noLayer // code without a name, or none of the guest program's
	layerCount
)

// jdkPrefixes are the packages of the Java class library.
var jdkPrefixes = []string{"java.", "javax.", "jdk.", "sun.", "com.sun."}

// layerOf tells which layer m belongs to: the application if app matches its name; nil for whatever is not in the
// Java class library.
func layerOf(m Method, app *regexp.Regexp) layer {
	switch {
	case m.Native, strings.HasPrefix(m.Name, "["):
		return noLayer
	case app != nil && app.MatchString(m.Name):
		return appLayer
	case app != nil:
		return jdkLayer
	}
	for _, prefix := range jdkPrefixes {
		if strings.HasPrefix(m.Name, prefix) {
			return jdkLayer
		}
	}
	return appLayer
}

// describeLayers says what the columns of the matrix mean.
func describeLayers(app *regexp.Regexp) string {
	if app != nil {
		return "App: methods that match " + printable(app.String()) + "; JDK: all others"
	}
	return "App: everything but " + strings.Join(jdkPrefixes, "*, ") + "*, which are JDK"
}
