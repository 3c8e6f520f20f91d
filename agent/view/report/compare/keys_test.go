package compare

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// What differs from run to run is left out of names, but nothing of the method.
func TestStable(t *testing.T) {
	for name, want := range map[string]string{
		"shop.Main$$Lambda$14/0x0000000840066040.run":              "shop.Main$$Lambda.run",
		"shop.Main$$Lambda$14/1324119927.fill":                     "shop.Main$$Lambda.fill",
		"shop.Main$$Lambda/0x00007f5c1c000a00.apply":               "shop.Main$$Lambda.apply",
		"shop.Main$$Lambda.run":                                    "shop.Main$$Lambda.run",
		"shop.Main$$Lambda.fill(I)":                                "shop.Main$$Lambda.fill(I)",
		"java.lang.invoke.LambdaForm$MH.0x00007f1c4c003400.invoke": "java.lang.invoke.LambdaForm$MH.invoke",
		"java.lang.invoke.LambdaForm$DMH.accept":                   "java.lang.invoke.LambdaForm$DMH.accept",
		"jdk.internal.reflect.GeneratedMethodAccessor12.invoke":    "jdk.internal.reflect.GeneratedMethodAccessor.invoke",
		"com.sun.proxy.$Proxy7.get":                                "com.sun.proxy.$Proxy.get",
		"shop.Main.run":                                            "shop.Main.run",
	} {
		if got := stable(stacks.Method{Name: name, SystemName: name}).Name; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
