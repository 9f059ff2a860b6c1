// SPDX-License-Identifier: Apache-2.0
// Runs actors that have messages: on a worker of CAF's scheduler, or on the thread that has sent the message.
//
// Waking a thread takes several times as long as most handlers here. With CAF's own queue a message wakes a worker with
// the queue's lock held, and the worker waits for the lock at once.
//
// YR-1 (one wake-up): a message wakes at most one worker, without a lock, and none while a woken worker has not taken
//      an actor yet.
// YR-2 (no lost actor): while an actor waits in the queue, a worker runs or has been woken.
// YR-3 (on the spot): if a thread sends a message to an actor with RunsAnywhere during RunHere, the actor runs on that
//      thread, at the end of RunHere, and so do such actors that it sends messages to.
#pragma once

#include <caf/policy/unprofiled.hpp>
#include <caf/scheduler/coordinator.hpp>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>

#include "actors/messages/caf_compat.hpp"

namespace maestro {

/// Marks actors whose handlers are short and wait for no thread.
class RunsAnywhere {
 public:
  virtual ~RunsAnywhere() = default;
};

/// For threads that report events to actors, such as the end of a write: marked actors that become ready run at the end
/// of this object, on its thread, which then holds no lock. A thread has one object at a time.
class RunHere {
 public:
  RunHere();
  ~RunHere();
  RunHere(const RunHere&) = delete;
  RunHere& operator=(const RunHere&) = delete;

  /// Passes `job` to the thread's object. Returns false if there is none, or if the job is not a marked actor. Actors
  /// keep a pointer to `unit`, which lives as long as the actor system.
  static bool take(caf::scoped_execution_unit& unit, caf::resumable* job);

 private:
  caf::scoped_execution_unit* unit_ = nullptr;
  std::deque<caf::resumable*> ready_;
};

/// The queue that the workers of an actor system share: a policy of caf::scheduler::coordinator, which calls it from
/// any thread.
class ReadyQueue : public caf::policy::unprofiled {
 public:
  struct coordinator_data {
    explicit coordinator_data(caf::scheduler::abstract_coordinator* self)
        : unit(self != nullptr ? &self->system() : nullptr) {}
    caf::scoped_execution_unit unit;  // of actors that run on other threads; passes what they wake to the queue
    std::mutex mutex;
    std::condition_variable more;
    std::deque<caf::resumable*> jobs;
    std::size_t asleep = 0;  // workers that wait for a job
    std::size_t woken = 0;   // of these, workers that were woken
  };
  struct worker_data {
    explicit worker_data(caf::scheduler::abstract_coordinator*) {}
  };

  template <class Coordinator>
  void central_enqueue(Coordinator* self, caf::resumable* job) {
    if (!RunHere::take(d(self).unit, job)) push(d(self), job, 1);
  }
  template <class Worker>
  void external_enqueue(Worker* self, caf::resumable* job) {
    push(d(self->parent()), job, 1);
  }
  /// The worker itself takes a single job after its handler, so only a second job wakes another worker.
  template <class Worker>
  void internal_enqueue(Worker* self, caf::resumable* job) {
    push(d(self->parent()), job, 2);
  }
  template <class Worker>
  void resume_job_later(Worker* self, caf::resumable* job) {
    push(d(self->parent()), job, 2);
  }
  template <class Worker>
  caf::resumable* dequeue(Worker* self) {
    return pop(d(self->parent()));
  }
  template <class Worker, class Visit>
  void foreach_resumable(Worker*, Visit) {}
  template <class Coordinator, class Visit>
  void foreach_central_resumable(Coordinator* self, Visit visit) {
    for (caf::resumable* job : d(self).jobs) visit(job);
    d(self).jobs.clear();
  }

 private:
  /// Wakes a worker if at least `enough` jobs wait.
  static void push(coordinator_data& data, caf::resumable* job, std::size_t enough);
  static caf::resumable* pop(coordinator_data& data);
};

/// Gives actor systems with this configuration a ReadyQueue with `workers` threads.
void use_ready_queue(caf::actor_system_config& config, std::size_t workers);

}  // namespace maestro
