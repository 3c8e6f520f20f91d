package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// trigonometry spends its time in the VM's stub of Math.cos, which month calls through one of two
// methods that C2 inlines.
const trigonometry = `
public class Trigonometry {
    static volatile double sum;
    static double taxes(int n) { double s = 0; for (int i = 1; i < n; i++) s += Math.cos(i + s); return s; }
    static double rebates(int n) { double s = 0; for (int i = 1; i < n; i++) s += Math.cos(i - s); return s; }
    static void month() { sum = taxes(3000) + rebates(1000); }
    public static void main(String[] args) throws Exception {
        Thread worker = new Thread(() -> { while (true) month(); });
        worker.setDaemon(true);
        worker.start();
        System.out.println("ready pid " + ProcessHandle.current().pid());
        System.in.read();
    }
}`

// HotSpot does not record where compiled code calls a stub. A stack says so, and with
// DebugNonSafepoints it has the inlined method.
func TestStubCallers(t *testing.T) {
	needs.Root(t, "sampling")
	classes, err := needs.JDK(t).Compile(t.Context(), jvm.Build{
		Sources: fstest.MapFS{"Trigonometry.java": {Data: []byte(trigonometry)}}, Release: jvm.MinVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	const vague = "[inlined in Trigonometry.month]"
	for _, jdk := range needs.JDKs(t) {
		for _, recorded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/%v", jdk.Version, recorded), func(t *testing.T) {
				flags := []string{"-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Trigonometry::month"}
				if recorded {
					flags = append(flags, "-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints")
				}
				guest, err := jvm.Start(t.Context(), jvm.Command{JDK: jdk, Flags: flags, Classpath: []string{classes},
					Main: "Trigonometry"})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { guest.Close() })
				p := recordWork(t, guest.PID(), 1500*time.Millisecond)
				callers := map[string]int64{}
				for _, s := range p.Sample {
					frames := stacks.FramesOf(s)
					at := slices.IndexFunc(frames,
						func(f stacks.Frame) bool { return f.Function == "Trigonometry.month" })
					if at < 0 || !strings.HasPrefix(frames[0].Function, "[stub: ") {
						continue
					}
					caller := frames[1].Function
					callers[caller] += s.Value[0]
					if approximate := slices.Equal(s.Label["attribution"],
						[]string{"approximate"}); approximate != stacks.InlinedIn(caller) {
						t.Errorf("caller %s, approximate %v", caller, approximate)
					}
				}
				t.Log(callers)
				taxes, rebates := callers["Trigonometry.taxes"], callers["Trigonometry.rebates"]
				all := taxes + rebates + callers[vague] + callers["[inlined in Trigonometry.taxes]"] +
					callers["[inlined in Trigonometry.rebates]"]
				const enough = 200
				switch {
				case all < enough:
					t.Errorf("%d samples in the stub below month", all)
				case callers["Trigonometry.month"] > 0:
					t.Errorf("%d samples have no inlined method and do not say so", callers["Trigonometry.month"])
				case recorded && (callers[vague] > all/50 || float64(taxes)/float64(all) < 0.65 ||
					float64(taxes)/float64(all) > 0.85):
					t.Errorf("%d of %d samples are called by taxes, want three in four; %d by nobody known", taxes, all,
						callers[vague])
				}
			})
		}
	}
}
