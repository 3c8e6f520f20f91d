package sink

import "strings"

// methodNames names methods for people: with the types of its arguments where a method is overloaded. All methods are
// added before the first is named.
type methodNames struct {
	systemNames map[string]string // of the method with a name, "" if there are several
}

func newMethodNames() methodNames { return methodNames{make(map[string]string)} }

func (n methodNames) add(m Method) {
	systemName, known := n.systemNames[m.Name]
	if !known {
		n.systemNames[m.Name] = m.SystemName
	} else if systemName != m.SystemName {
		n.systemNames[m.Name] = ""
	}
}

func (n methodNames) name(m Method) string {
	end := strings.LastIndexByte(m.SystemName, ')')
	if n.systemNames[m.Name] != "" || !strings.HasPrefix(m.SystemName, m.Name+"(") || end < 0 {
		return m.Name
	}
	return m.SystemName[:end+1] // without the result of a Java method, which says little
}
