package methodinfo

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// FunctionName joins a class and a method in the form of Java source: java.util.HashMap.get. class
// is in the VM's internal form, java/util/HashMap.
func FunctionName(class, method string) string {
	if class == "" {
		return method
	}
	return className(class) + "." + method
}

// className turns the VM's internal form of a class name into that of Java source, and drops what
// differs between two runs of the same program, so that profiles can be compared and merged:
//
//	java/lang/invoke/LambdaForm$MH+0x00007f1c4c003400  ->  java.lang.invoke.LambdaForm$MH     hidden classes, JDK 15+
//	app/Main$$Lambda$14+0x0000000800c02a18             ->  app.Main$$Lambda                    JDK 15-20
//	app/Main$$Lambda$14/1324119927                     ->  app.Main$$Lambda                    JDK 8-14
//
// The numbers say in which order lambdas were first run, and where. Two lambdas of one class get
// the same name, but their bodies are methods of that class with names of their own
// (lambda$main$0).
func className(class string) string {
	class = dropHiddenSuffix(class)
	const lambda = "$$Lambda"
	if i := strings.LastIndex(class, lambda); i >= 0 {
		if number, found := strings.CutPrefix(class[i+len(lambda):], "$"); found && isNumber(number) {
			class = class[:i+len(lambda)]
		}
	}
	return strings.ReplaceAll(class, "/", ".")
}

// dropHiddenSuffix cuts the address or number that distinguishes hidden and VM-anonymous classes. A
// '/' before a number cannot be part of a class name, as no identifier begins with a digit.
func dropHiddenSuffix(class string) string {
	i := strings.LastIndexAny(class, "+/")
	if i <= 0 {
		return class
	}
	suffix := class[i+1:]
	if address, found := strings.CutPrefix(suffix, "0x"); found && isHex(address) || class[i] == '/' &&
		isNumber(suffix) {
		return class[:i]
	}
	return class
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// maxDimensions is how many an array may have (JVM specification, section 4.4.1).
const maxDimensions = 255

// ClassName turns the bytes of the Symbol that names a class into the name that people know:
//
//	java/util/HashMap$Node             ->  java.util.HashMap$Node
//	[Ljava/lang/String;                ->  java.lang.String[]
//	[[I                                ->  int[][]
//	app/Main$$Lambda+0x00007f1c4c003400  ->  app.Main$$Lambda
//
// What is no name of a class is only cleaned: see vmstructs.CleanText. A Symbol may have 65,535
// bytes; what is behind the first vmstructs.MaxNameBytes is lost, and an array of such a class is
// named like the class.
func ClassName(symbol []byte) string { return ObjectClass(vmstructs.CleanText(symbol)) }

// ObjectClass does so for a name that was cleaned.
func ObjectClass(name string) string {
	element := strings.TrimLeft(name, "[")
	dimensions := len(name) - len(element)
	if dimensions == 0 || dimensions > maxDimensions {
		return className(name)
	}
	if class, ok := elementName(element); ok {
		return class + strings.Repeat("[]", dimensions)
	}
	return className(name)
}

// elementName is the type that a descriptor other than an array's says (JVM specification, section
// 4.3.2).
func elementName(descriptor string) (name string, ok bool) {
	if len(descriptor) == 1 {
		name, ok = primitives[descriptor[0]]
		return name, ok
	}
	class, ok1 := strings.CutPrefix(descriptor, "L")
	class, ok2 := strings.CutSuffix(class, ";")
	return className(class), ok1 && ok2 && class != ""
}

var primitives = map[byte]string{
	'B': "byte", 'C': "char", 'D': "double", 'F': "float", 'I': "int", 'J': "long", 'S': "short", 'Z': "boolean",
}

// TypeName is the type that a field's descriptor says, in the form of ClassName.
func TypeName(descriptor string) string {
	if name, ok := elementName(descriptor); ok {
		return name
	}
	return ObjectClass(descriptor)
}

// TypeBytes is how many bytes a field of that descriptor has; reference is that of a reference.
func TypeBytes(descriptor string, reference uint32) uint32 {
	if descriptor == "" {
		return 1
	}
	switch descriptor[0] {
	case 'L', '[':
		return reference
	case 'D', 'J':
		return 8
	case 'F', 'I':
		return 4
	case 'C', 'S':
		return 2
	}
	return 1
}
