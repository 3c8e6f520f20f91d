package harness

import "testing"

func TestMisses(t *testing.T) {
	const printed = `Plain, default, JDK 17  truth %  measured %  tolerance
self heavy              50.00    50.20       2.00       ok
1000 samples

Deopt, C2, JDK 17  truth %  measured %  tolerance
self light         50.00    51.00       2.00       ok
self heavy         50.00    60.00       2.00       MISSED
self heavy:
    600 guest.Deopt.heavy
1000 samples

shares took 4 s

program  overlap
Xalan    MISSED
Xerces   ok

`
	const want = `Deopt, C2, JDK 17  truth %  measured %  tolerance
self heavy         50.00    60.00       2.00       MISSED
self heavy:
    600 guest.Deopt.heavy
program  overlap
Xalan    MISSED
`
	if got := Misses(printed); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
