package usdt

import "fmt"

// currentExecuteData is where executor_globals has current_execute_data (Zend/zend_globals.h), in
// bytes: the same in all versions below, on 64-bit machines and without ZTS.
const currentExecuteData = 488

// A layout is the offsets in zend_op_array (Zend/zend_compile.h) that differ between versions of
// PHP, in bytes on 64-bit machines. The kernel side compares what it finds there with the probe's
// arguments: a wrong offset loses all calls, but gives no wrong one.
type layout struct {
	filename uint32
	opcodes  uint32
}

// layoutOf returns the layout of a version. Versions that nobody has looked at are refused.
//
//	PHP       filename  opcodes  what moved them
//	7.4       136       64
//	8.0, 8.1  144       72       attributes joined the part that all functions have
//	8.2       152       88       T and run_time_cache did, 4 bytes of padding between
//	8.3       144       80       those two changed places
//	8.4       168       104      doc_comment and prop_info joined
func layoutOf(v Version) (layout, error) {
	switch [2]int{v.Major, v.Minor} {
	case [2]int{7, 4}:
		return layout{136, 64}, nil
	case [2]int{8, 0}, [2]int{8, 1}:
		return layout{144, 72}, nil
	case [2]int{8, 2}:
		return layout{152, 88}, nil
	case [2]int{8, 3}:
		return layout{144, 80}, nil
	case [2]int{8, 4}:
		return layout{168, 104}, nil
	}
	return layout{}, fmt.Errorf("%v: this agent supports PHP 7.4 to 8.4 only", v)
}
