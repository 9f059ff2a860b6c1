// SPDX-License-Identifier: Apache-2.0
// Shows ThreadSanitizer the order that CAF's mailboxes make, so that races between an actor's handler and another
// thread are found, which tsan.supp drops. Preloaded, it stands before functions of CAF 0.17: whoever enqueues a
// message releases the receiver, which acquires itself before it handles a message, and releases itself when its turn
// ends.
//
//   gcc -shared -fPIC -O1 -o caf_order.so tests/sanitizers/caf_order.c -ldl
//   LD_PRELOAD=libtsan.so.2:$PWD/caf_order.so TSAN_OPTIONS=suppressions=tests/sanitizers/tsan_ordered.supp maestro
//   train JOB
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

void __tsan_acquire(void*);
void __tsan_release(void*);

static char delayed;  // messages that CAF's clock sends later

#define FIND(type, symbol)                \
  static __typeof__((type)0) next = NULL; \
  if (next == NULL) next = (__typeof__((type)0))dlsym(RTLD_NEXT, symbol)

#define ENQUEUE(name, symbol)                                       \
  void name(void* self, void* element, void* unit) __asm__(symbol); \
  void name(void* self, void* element, void* unit) {                \
    FIND(void (*)(void*, void*, void*), symbol);                    \
    __tsan_acquire(&delayed);                                       \
    __tsan_release(self);                                           \
    next(self, element, unit);                                      \
  }
ENQUEUE(
    enqueue_scheduled,
    "_ZN3caf15scheduled_actor7enqueueESt10unique_ptrINS_15mailbox_elementENS_6detail8disposerEEPNS_14execution_unitE")
ENQUEUE(
    enqueue_blocking,
    "_ZN3caf14blocking_actor7enqueueESt10unique_ptrINS_15mailbox_elementENS_6detail8disposerEEPNS_14execution_unitE")

// Called by `resumable`, 160 bytes behind the actor.
#define RESUME "_ZThn160_N3caf15scheduled_actor6resumeEPNS_14execution_unitEm"
int resume(void* base, void* unit, size_t most) __asm__(RESUME);
int resume(void* base, void* unit, size_t most) {
  FIND(int (*)(void*, void*, size_t), RESUME);
  void* self = (char*)base - 160;
  __tsan_acquire(self);
  const int result = next(base, unit, most);
  __tsan_release(self);
  return result;
}

#define HANDLE(name, symbol)                           \
  int name(void* self, void* element) __asm__(symbol); \
  int name(void* self, void* element) {                \
    FIND(int (*)(void*, void*), symbol);               \
    __tsan_acquire(self);                              \
    return next(self, element);                        \
  }
HANDLE(reactivate, "_ZN3caf15scheduled_actor10reactivateERNS_15mailbox_elementE")
HANDLE(consume, "_ZN3caf15scheduled_actor7consumeERNS_15mailbox_elementE")

#define AWAIT "_ZN3caf14blocking_actor10await_dataEv"
void await_data(void* self) __asm__(AWAIT);
void await_data(void* self) {
  FIND(void (*)(void*), AWAIT);
  next(self);
  __tsan_acquire(self);
}

#define AWAIT_UNTIL                                                                        \
  "_ZN3caf14blocking_actor10await_dataENSt6chrono10time_pointINS1_3_V212system_clockENS1_" \
  "8durationIlSt5ratioILl1ELl1000000000EEEEEE"
int await_data_until(void* self, long time) __asm__(AWAIT_UNTIL);
int await_data_until(void* self, long time) {
  FIND(int (*)(void*, long), AWAIT_UNTIL);
  const int result = next(self, time);
  __tsan_acquire(self);
  return result;
}

#define SCHEDULE                                                                                                 \
  "_ZN3caf6detail23thread_safe_actor_clock16schedule_messageENSt6chrono10time_pointINS2_3_V212steady_clockENS2_" \
  "8durationIlSt5ratioILl1ELl1000000000EEEEEENS_13intrusive_ptrINS_19actor_control_blockEEESt10unique_ptrINS_"   \
  "15mailbox_elementENS0_8disposerEE"
void schedule(void* self, long time, void* receiver, void* element) __asm__(SCHEDULE);
void schedule(void* self, long time, void* receiver, void* element) {
  FIND(void (*)(void*, long, void*, void*), SCHEDULE);
  __tsan_release(&delayed);
  next(self, time, receiver, element);
}

#define DEREFERENCE "_ZN3caf21intrusive_ptr_releaseEPNS_19actor_control_blockE"
void dereference(void* actor) __asm__(DEREFERENCE);
void dereference(void* actor) {
  FIND(void (*)(void*), DEREFERENCE);
  __tsan_release(actor);
  __tsan_acquire(actor);
  next(actor);
}
