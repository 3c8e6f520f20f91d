package vmtest

// Tables lays out the four arrays as HotSpot does, with gaps and columns in another order.
func Tables(m *Image) (symbols map[string]uint64) {
	symbols = make(map[string]uint64)
	field := func(class, name, typ string, static, offset, addr uint64) []uint64 {
		// type name, field name, type, static, offset, address; then a gap
		return []uint64{m.Text(class), m.Text(name), m.Text(typ), static, offset, addr, 0xbad}
	}
	tables := map[string][][]uint64{
		"VMStructs": {
			field("CodeBlob", "_name", "const char*", 0, 96, 0),
			field("CodeBlob", "_size", "int", 0, 12, 0),
			field("nmethod", "_state", "volatile signed char", 0, 315, 0),
			field("CodeCache", "_heaps", "GrowableArray<CodeHeap*>*", 1, 0, 0x7f00),
		},
		"VMTypes":         {{m.Text("CodeBlob"), 104}, {m.Text("nmethod"), 352}},
		"VMIntConstants":  {{m.Text("frame::entry_frame_call_wrapper_offset"), 0xffff_fffa}},
		"VMLongConstants": {{m.Text("markWord::age_mask"), 1 << 40}},
	}
	for _, table := range []struct {
		array, entry string
		columns      []string
	}{
		{"VMStructs", "VMStructEntry", []string{"TypeName", "FieldName", "TypeString", "IsStatic", "Offset",
			"Address"}},
		{"VMTypes", "VMTypeEntry", []string{"TypeName", "Size"}},
		{"VMIntConstants", "VMIntConstantEntry", []string{"Name", "Value"}},
		{"VMLongConstants", "VMLongConstantEntry", []string{"Name", "Value"}},
	} {
		rows := tables[table.array]
		var all []uint64
		for _, row := range rows {
			all = append(all, row...)
		}
		size := len(rows[0])
		all = append(all, make([]uint64, size)...) // the end mark
		const prefix = "gHotSpot"
		symbols[prefix+table.array] = m.Words(m.Words(all...))
		symbols[prefix+table.entry+"ArrayStride"] = m.Words(uint64(8 * size))
		for i, column := range table.columns {
			symbols[prefix+table.entry+column+"Offset"] = m.Words(uint64(8 * i))
		}
	}
	return symbols
}

// Lookup looks symbols up in a map.
func Lookup(symbols map[string]uint64) func(string) (uint64, bool) {
	return func(name string) (uint64, bool) { addr, ok := symbols[name]; return addr, ok }
}
