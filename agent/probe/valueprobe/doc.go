// Package valueprobe parses the specifications of values that users want to read at a probe, and
// has the types of what is read there.
//
//	spec, err := valueprobe.Parse("libjvm.so:usdt:hotspot:thread__start=arg1:str:arg2,arg3/97")
//
// The syntax (see Help) needs no quotes in a shell. Package attach finds the values in a process.
package valueprobe

// Help describes the syntax, for the help of a verb. Its lines have less than 80 columns.
const Help = `SPEC selects a probe and the values to read there:

  [LIBRARY:]PLACE[=VALUE,...][/N]

  LIBRARY   file name or path of the library or program, such as libjvm.so
            (default: all files that the process maps)
  PLACE     usdt:PROVIDER:NAME  a USDT probe: 'vmprof-agent probes' lists them
            func:SYMBOL         entry of a function: malloc, A::f, _ZN1A1fEv
  VALUE     BASE[@OFFSET[@OFFSET]][+OFFSET][:FORM], at most 8
            (default: count executions)
  /N        read every Nth execution (default: from --budget)

  BASE      arg1, arg2, ...: the probe's operands or the function's integer or
            pointer arguments; or a register: rdi, x0
  @OFFSET   read memory at the value plus OFFSET (bytes, may be negative),
            at most twice: arg1@8@-16
  +OFFSET   add to the value; -OFFSET subtracts
  FORM      u8 u16 u32 u64 s8 s16 s32 s64: a number of that many bits
            str: the address of text, up to a zero byte
            str:LENGTH: text of LENGTH bytes; arg2, a register or a number
            symbol: HotSpot, the address of a Symbol; records its text
            klass: HotSpot, the address of a Klass; records its name
            class: HotSpot, the address of an object; records its class
            (default: a number as wide as the operand, or 64 bits)

Texts of one execution share 480 bytes. Only resident memory is read.

  usdt:hotspot:gc__begin=arg1               1 for a full collection
  usdt:hotspot:thread__start=arg1:str:arg2  names of starting threads
  usdt:php:function__entry=arg1:str,arg4:str/97
  libjvm.so:func:AllocTracer::send_allocation_in_new_tlab=arg1:klass,arg4
  func:write=arg3                           sizes of writes
`
