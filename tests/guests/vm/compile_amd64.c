/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The template compiler for x86-64: each instruction becomes the same few machine instructions wherever it stands.
 *
 *	rax	accumulator: argument and result of calls
 *	rbp	frame; local i is at rbp - 8 * (i + 1)
 *	r12-14	struct context: counters, fields, slot; kept by all methods
 *	rcx rdx	scratch
 */
#include "code.h"
#include "memory.h"
#include "yield.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)

/* Of methods, bytes. */
#define ALIGNMENT 32

/* Code that is being written. */
struct writer {
	struct code *code;
	uint8_t *at, *end;
	uint32_t counter; /* the next one */
};

static void bytes(struct writer *w, size_t n, const uint8_t *b)
{
	if ((size_t)(w->end - w->at) < n)
		die("the code of %s does not fit", w->code->program->name);
	memcpy(w->at, b, n);
	w->at += n;
}

#define EMIT(w, ...) bytes(w, sizeof((const uint8_t[]){__VA_ARGS__}), (const uint8_t[]){__VA_ARGS__})

static void emit32(struct writer *w, int32_t v) { bytes(w, sizeof(v), (const uint8_t *)&v); }
static void emit64(struct writer *w, const void *v) { bytes(w, sizeof(v), (const uint8_t *)&v); }

static uint8_t local(uint32_t i)
{
	if (i >= MAX_LOCALS)
		die("local %u", i);
	return (uint8_t)(-8 * ((int)i + 1));
}

/* Emits a 32-bit distance to be filled in, and returns where it is. */
static uint8_t *distance(struct writer *w)
{
	emit32(w, 0);
	return w->at - 4;
}

static void fill(uint8_t *distance, const uint8_t *to)
{
	int32_t d = (int32_t)(to - (distance + 4));

	memcpy(distance, &d, sizeof(d));
}

/* The code that C enters by: enter(method, argument, context), by the C convention. */
static void compile_enter(struct writer *w)
{
	struct compiled *c = &w->code->methods[ENTER];

	c->begin = w->at;
	EMIT(w, 0x55, 0x48, 0x89, 0xe5);		   /* push rbp; mov rbp, rsp */
	EMIT(w, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56);	   /* push r12; push r13; push r14 */
	EMIT(w, 0x48, 0x83, 0xec, 0x08);		   /* sub rsp, 8 */
	EMIT(w, 0x4c, 0x8b, 0x72, offsetof(struct context, slot));     /* mov r14, [rdx + ...] */
	EMIT(w, 0x4c, 0x8b, 0x6a, offsetof(struct context, fields));   /* mov r13, [rdx + ...] */
	EMIT(w, 0x4c, 0x8b, 0x62, offsetof(struct context, counters)); /* mov r12, [rdx + ...] */
	EMIT(w, 0x48, 0x89, 0xf0);			   /* mov rax, rsi */
	EMIT(w, 0xff, 0xd7);				   /* call rdi */
	c->sites = zeroed(1, sizeof(*c->sites));
	c->sites[0] = (struct vmprof_site){(uint32_t)(w->at - c->begin), w->code->program->methods[ENTER].line + 1};
	c->site_count = 1;
	EMIT(w, 0x48, 0x83, 0xc4, 0x08);		   /* add rsp, 8 */
	EMIT(w, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c);	   /* pop r14; pop r13; pop r12 */
	EMIT(w, 0x5d, 0xc3);				   /* pop rbp; ret */
	c->size = (uint32_t)(w->at - c->begin);
}

/* Loads the registers for a call of this instruction, and emits its counting. */
static void compile_call(struct writer *w, const struct instruction *in)
{
	if (in->op == OP_CALL) {
		if (w->code->count) {
			EMIT(w, 0x49, 0xff, 0x84, 0x24); /* inc qword [r12 + ...] */
			emit32(w, (int32_t)(w->counter * 8));
		}
		w->counter++;
		EMIT(w, 0xe8); /* call; the distance is filled in when all methods are there */
		emit32(w, in->a);
		return;
	}
	EMIT(w, 0x48, 0x8b, 0x4d, local(in->local)); /* mov rcx, class */
	if (w->code->count) {
		EMIT(w, 0x49, 0xff, 0x84, 0xcc); /* inc qword [r12 + rcx * 8 + ...] */
		emit32(w, (int32_t)(w->counter * 8));
	}
	w->counter += MAX_CLASSES;
	EMIT(w, 0x48, 0xba); /* mov rdx, vtable */
	emit64(w, w->code->vtable[in->a]);
	EMIT(w, 0xff, 0x14, 0xca); /* call [rdx + rcx * 8] */
}

/* An instruction. Returns where the distance of a jump is, NULL if there is none. */
static uint8_t *compile_instruction(struct writer *w, const struct instruction *in)
{
	switch (in->op) {
	case OP_CONST:
		EMIT(w, 0x48, 0xc7, 0xc0); /* mov rax, a */
		emit32(w, in->a);
		return NULL;
	case OP_SET:
		EMIT(w, 0x48, 0xc7, 0x45, local(in->local)); /* mov local, a */
		emit32(w, in->a);
		return NULL;
	case OP_LOAD:
		EMIT(w, 0x48, 0x8b, 0x45, local(in->local)); /* mov rax, local */
		return NULL;
	case OP_STORE:
		EMIT(w, 0x48, 0x89, 0x45, local(in->local)); /* mov local, rax */
		return NULL;
	case OP_ADD:
		EMIT(w, 0x48, 0x03, 0x45, local(in->local)); /* add rax, local */
		return NULL;
	case OP_ADDI:
		EMIT(w, 0x48, 0x05); /* add rax, a */
		emit32(w, in->a);
		return NULL;
	case OP_MULI:
		EMIT(w, 0x48, 0x69, 0xc0); /* imul rax, rax, a */
		emit32(w, in->a);
		return NULL;
	case OP_XSHIFT:
		EMIT(w, 0x48, 0x89, 0xc1);		   /* mov rcx, rax */
		EMIT(w, 0x48, 0xc1, 0xe9, (uint8_t)in->a); /* shr rcx, a */
		EMIT(w, 0x48, 0x31, 0xc8);		   /* xor rax, rcx */
		return NULL;
	case OP_GETFIELD:
		EMIT(w, 0x49, 0x03, 0x85); /* add rax, [r13 + ...] */
		emit32(w, in->a * 8);
		return NULL;
	case OP_PUTFIELD:
		EMIT(w, 0x49, 0x89, 0x85); /* mov [r13 + ...], rax */
		emit32(w, in->a * 8);
		return NULL;
	case OP_PICK:
		EMIT(w, 0x8b, 0x4d, local((uint32_t)in->b)); /* mov ecx, local[b] */
		EMIT(w, 0x83, 0xe1, TABLE_SIZE - 1);	     /* and ecx, ... */
		EMIT(w, 0x48, 0xba);			     /* mov rdx, table */
		emit64(w, w->code->program->tables[in->a]);
		EMIT(w, 0x0f, 0xb6, 0x0c, 0x0a);	     /* movzx ecx, byte [rdx + rcx] */
		EMIT(w, 0x48, 0x89, 0x4d, local(in->local)); /* mov local, rcx */
		return NULL;
	case OP_LOOP:
		EMIT(w, 0x48, 0xff, 0x4d, local(in->local)); /* dec local */
		EMIT(w, 0x0f, 0x85);			     /* jnz */
		return distance(w);
	case OP_UNLESS:
		EMIT(w, 0x8b, 0x4d, local(in->local)); /* mov ecx, local */
		EMIT(w, 0x81, 0xe1);		       /* and ecx, a */
		emit32(w, in->a);
		EMIT(w, 0x81, 0xf9); /* cmp ecx, b */
		emit32(w, in->b);
		EMIT(w, 0x0f, 0x85); /* jne */
		return distance(w);
	case OP_BELOW:
		EMIT(w, 0x48, 0x3d); /* cmp rax, a */
		emit32(w, in->a);
		EMIT(w, 0x0f, 0x82); /* jb */
		return distance(w);
	case OP_CALL:
	case OP_VCALL:
		compile_call(w, in);
		return NULL;
	case OP_RETURN:
		EMIT(w, 0xc9, 0xc3); /* leave; ret */
		return NULL;
	}
	die("instruction %d", in->op);
}

/*
 * What YIELDING methods call, with their id above the return address and, above that, the address that they return to. It
 * keeps the accumulator and, as C does, r12 to r14.
 */
static void compile_yield(struct writer *w)
{
	void (*yield)(uint32_t, const void *) = yieldpoint;

	w->code->yield = w->at;
	EMIT(w, 0x55, 0x48, 0x89, 0xe5); /* push rbp; mov rbp, rsp */
	EMIT(w, 0x50);			 /* push rax */
	EMIT(w, 0x8b, 0x7d, 16);	 /* mov edi, id */
	EMIT(w, 0x48, 0x8b, 0x75, 24);	 /* mov rsi, the method's return address */
	EMIT(w, 0x48, 0x83, 0xe4, 0xf0); /* and rsp, -16 */
	EMIT(w, 0xff, 0x15, 8, 0, 0, 0); /* call [rip + 8] */
	EMIT(w, 0x48, 0x8b, 0x45, 0xf8); /* mov rax, [rbp - 8] */
	EMIT(w, 0xc9, 0xc2, 8, 0);	 /* leave; ret 8: without the id */
	bytes(w, sizeof(yield), (const uint8_t *)&yield);
}

/* The check whether this thread is sampled. Returns the place of the distance to compile_cold's code. */
static uint8_t *compile_check(struct writer *w)
{
	EMIT(w, 0x41, 0x83, 0x3e, 0x00); /* cmp dword [r14], 0: vmprof_slot.armed */
	EMIT(w, 0x0f, 0x85);		 /* jne */
	return distance(w);
}

/* The target of the check's jump, away from all other code. */
static void compile_cold(struct writer *w, uint32_t id, uint8_t *check)
{
	void (*stub)(void) = vmprof_stub;
	const void *yield = w->code->yield;

	fill(check, w->at);
	EMIT(w, 0x68); /* push id */
	emit32(w, (int32_t)id);
	EMIT(w, 0xff, 0x15, 5, 0, 0, 0); /* call [rip + 5]: the stub may be too far for a direct call */
	EMIT(w, 0xe9);			 /* jmp to behind the check */
	fill(distance(w), check + 4);
	if (w->code->prologue == YIELDING)
		bytes(w, sizeof(yield), (const uint8_t *)&yield);
	else
		bytes(w, sizeof(stub), (const uint8_t *)&stub);
}

static void compile_method(struct writer *w, uint32_t m)
{
	const struct method *method = &w->code->program->methods[m];
	struct compiled *c = &w->code->methods[m];
	uint8_t **begins = zeroed(method->length, sizeof(*begins)), **jumps = zeroed(method->length, sizeof(*jumps));
	uint8_t *check = NULL;

	while ((uintptr_t)w->at % ALIGNMENT)
		EMIT(w, 0xcc); /* int3 */
	c->begin = w->at;
	c->sites = zeroed(method->length, sizeof(*c->sites));
	if (w->code->prologue == CHECKED || w->code->prologue == YIELDING)
		check = compile_check(w);
	else if (w->code->prologue == PADDED) /* nop word [rax + rax + 0x0]: as long as the check */
		EMIT(w, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0);
	EMIT(w, 0x55, 0x48, 0x89, 0xe5);		 /* push rbp; mov rbp, rsp */
	EMIT(w, 0x48, 0x83, 0xec, 8 * MAX_LOCALS);	 /* sub rsp, ...: still aligned to 16 */
	EMIT(w, 0x48, 0x89, 0x45, local(0));		 /* mov local 0, rax */
	for (uint32_t i = 0; i < method->length; i++) {
		const struct instruction *in = &method->code[i];

		begins[i] = w->at;
		jumps[i] = compile_instruction(w, in);
		if (in->op == OP_CALL || in->op == OP_VCALL)
			c->sites[c->site_count++] =
				(struct vmprof_site){(uint32_t)(w->at - c->begin), method->line + 1 + i};
	}
	for (uint32_t i = 0; i < method->length; i++)
		if (jumps[i])
			fill(jumps[i], begins[method->code[i].target]);
	if (check)
		compile_cold(w, m + 1, check);
	c->size = (uint32_t)(w->at - c->begin);
	free(begins);
	free(jumps);
}

/* Directs all calls to the present addresses of the methods. */
static void link_calls(struct code *c)
{
	for (uint32_t m = ENTER + 1; m < c->program->method_count; m++) {
		const struct method *method = &c->program->methods[m];
		const struct vmprof_site *site = c->methods[m].sites;

		for (uint32_t i = 0; i < method->length; i++) {
			const struct instruction *in = &method->code[i];

			if (in->op == OP_CALL) /* the distance is the end of the instruction */
				fill(c->methods[m].begin + site->offset - 4, c->methods[in->a].begin);
			site += in->op == OP_CALL || in->op == OP_VCALL;
		}
	}
	for (uint32_t selector = 0; selector < MAX_SELECTORS; selector++)
		for (uint32_t class = 0; class < MAX_CLASSES; class++)
			c->vtable[selector][class] = c->methods[c->program->vtable[selector][class]].begin;
}

struct code *compile(const struct program *p, enum prologue prologue, int count)
{
	struct code *c = zeroed(1, sizeof(*c));
	struct writer w = {.code = c};

	c->program = p;
	c->prologue = prologue;
	c->count = count;
	c->methods = zeroed(p->method_count, sizeof(*c->methods));
	for (uint32_t i = 0; i < MAX_SELECTORS; i++)
		c->vtable[i] = zeroed(MAX_CLASSES, sizeof(*c->vtable[i]));
	c->size = 4096;
	for (uint32_t m = 0; m < p->method_count; m++)
		c->size += 64 + 32 * p->methods[m].length; /* more than any template needs */
	c->memory = mmap(NULL, c->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (c->memory == MAP_FAILED)
		die("no memory for the code of %s", p->name);
	w.at = c->memory;
	w.end = c->memory + c->size;

	compile_enter(&w);
	compile_yield(&w);
	for (uint32_t m = ENTER + 1; m < p->method_count; m++)
		compile_method(&w, m);
	link_calls(c);
	c->counter_count = w.counter;
	if (mprotect(c->memory, c->size, PROT_READ | PROT_EXEC) != 0)
		die("this system lets no program make code executable");
	return c;
}

#endif
