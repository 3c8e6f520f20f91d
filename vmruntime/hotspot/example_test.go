package hotspot

import (
	"fmt"
	"log"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
)

// recorded is a JDK 17 whose memory was recorded. A profiler takes the Image from Runtime.Image,
// and gives Attach a Memory that reads the memory of a process.
func recorded() (*Image, vmruntime.Target) {
	r, err := readRecording("testdata/jdk17.gz")
	if err != nil {
		log.Fatal(err)
	}
	return r.image(), vmruntime.Target{Memory: r.memory(), Bias: r.Bias}
}

// A runtime recognises a VM's library by its name.
func ExampleRuntime_Recognise() {
	var vm vmruntime.Library = Runtime{}
	fmt.Println(vm.Name(), vm.Recognise("/usr/lib/jvm/jdk-25/lib/server/libjvm.so"), vm.Recognise("/usr/lib/libc.so.6"))
	// Output: hotspot true false
}

// Attach reads the VM's own description. The layout is for those who walk stacks.
func ExampleImage_Attach() {
	image, target := recorded()
	attached, err := image.Attach(target)
	if err != nil {
		log.Fatal(err)
	}
	process := attached.(*Process)
	fmt.Println(process.Describe())
	layout := process.Layout()
	fmt.Println("code heaps:", len(layout.Cache.Heaps), "segments of", 1<<layout.Cache.SegmentShift, "bytes")
	// Output:
	// OpenJDK 64-Bit Server VM 17.0.15+6
	// code heaps: 3 segments of 128 bytes
}

// Lookup names a place in compiled code with all that is inlined there, innermost first. The
// version is the compile id of the code that the stack walk met.
func ExampleProcess_Lookup() {
	image, target := recorded()
	process, err := image.Attach(target)
	if err != nil {
		log.Fatal(err)
	}
	frames, err := process.Lookup(vmruntime.Site{Kind: vmruntime.Compiled, Version: 160, PC: 0x7ff181426c2b})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range frames {
		fmt.Printf("%s (%s:%d)\n", f.Function, f.File, f.Line)
	}
	// Output:
	// java.lang.String.coder (String.java:4545)
	// java.lang.String.length (String.java:1481)
	// hotspot.ScopesGuest.leaf (ScopesGuest.java:162)
	// hotspot.ScopesGuest.middle (ScopesGuest.java:157)
}

// ClassName turns a class as the VM names it into the name in Java source, the same in every run.
func ExampleClassName() {
	for _, symbol := range []string{"java/util/HashMap$Node", "[[I", "[Ljava/lang/String;",
		"app/Main$$Lambda+0x00007f1c4c003400"} {
		fmt.Println(methodinfo.ClassName([]byte(symbol)))
	}
	// Output:
	// java.util.HashMap$Node
	// int[][]
	// java.lang.String[]
	// app.Main$$Lambda
}
