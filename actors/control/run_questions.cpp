// SPDX-License-Identifier: Apache-2.0
#include "actors/control/run_questions.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds answer_patience(2000);  // limit for a busy coordinator
constexpr milliseconds pause_patience(30000);
constexpr milliseconds checkpoint_patience(600000);

/// Wakes a thread that waits for an answer: close() was called.
struct QuestionsClosed {};

}  // namespace
}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::QuestionsClosed)

namespace maestro {

/// The mailbox of a single call, registered so that close() can wake it.
class RunQuestions::Mailbox {
 public:
  explicit Mailbox(RunQuestions& questions) : questions_(questions), self_(questions.system_) {
    const std::lock_guard lock(questions_.mutex_);
    if (questions_.closed_) throw JobError("the run is at its end", ErrorCode::unavailable);
    questions_.waiting_[this] = caf::actor_cast<caf::actor>(self_.ptr());
    coordinator_ = questions_.coordinator_;
  }
  ~Mailbox() {
    const std::lock_guard lock(questions_.mutex_);
    questions_.waiting_.erase(this);
  }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  caf::scoped_actor& self() { return self_; }
  [[nodiscard]] const caf::actor& coordinator() const { return coordinator_; }
  /// Handles a message; returns false if none arrives in time or close() is called.
  template <class... Handlers>
  bool receive(RunQuestions::Clock::time_point deadline, Handlers... handlers) {
    bool came = true;
    const auto left = std::max(deadline - RunQuestions::Clock::now(), RunQuestions::Clock::duration(0));
    self_->receive(
        handlers..., [&](QuestionsClosed) { came = false; }, caf::after(left) >> [&] { came = false; });
    return came;
  }

 private:
  struct LeavesSystem {
    ~LeavesSystem() { leave_actor_system(); }
  };
  LeavesSystem leaves_system_;  // first: destroyed after the scoped actor
  RunQuestions& questions_;
  caf::scoped_actor self_;
  caf::actor coordinator_;
};

RunQuestions::RunQuestions(caf::actor_system& system, caf::actor coordinator)
    : system_(system), coordinator_(std::move(coordinator)) {}

template <class Answer, class Request>
std::optional<Answer> RunQuestions::query(Request request, milliseconds patience) {
  Mailbox mailbox(*this);
  mailbox.self()->send(mailbox.coordinator(), std::move(request));
  std::optional<Answer> answer;
  mailbox.receive(Clock::now() + patience, [&](Answer& given) { answer = std::move(given); });
  return answer;
}

template <class Answer, class Request>
Answer RunQuestions::query_or_throw(Request request, milliseconds patience) {
  auto answer = query<Answer>(std::move(request), patience);
  if (!answer) throw JobError("the run does not answer, or is at its end", ErrorCode::timeout);
  return *std::move(answer);
}

RunQuestions::View RunQuestions::view(milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  Mailbox mailbox(*this);
  View view;
  std::size_t queried = 0;
  std::shared_ptr<const Directory> directory;  // directory with the queried replicas
  bool answered = false;
  const auto query_replicas = [&](const RunStatus& run) {
    if (!run.directory || run.directory == directory) return;
    directory = run.directory;  // new after a move of placements: replicas in the last one may have retired
    queried = 0;
    for (const ReplicaAddress& replica : run.directory->replicas()) {
      mailbox.self()->send(replica.actor, StatusRequest{});
      ++queried;
    }
  };
  mailbox.self()->send(mailbox.coordinator(), RunStatusRequest{});
  if (const auto known = last()) {
    view.run = *known;
    query_replicas(*known);
  }
  const auto on_run = [&](RunStatus& run) {
    answered = true;
    view.run = std::move(run);
    query_replicas(view.run);
  };
  std::set<std::pair<SectionId, ReplicaIndex>> heard;
  const auto on_replica = [&](WaitingFor& answer) {
    if (heard.emplace(answer.section, answer.replica).second) view.replicas.push_back(std::move(answer));
  };
  const auto awaits_more = [&] { return !answered || view.replicas.size() < queried; };
  // Thousands of answers may arrive without a gap, so the deadline also ends the loop.
  while (awaits_more() && mailbox.receive(deadline, on_run, on_replica) && Clock::now() < deadline) {
  }
  if (!answered && !last()) view.run = status();  // there was none, or it was forgotten meanwhile
  remember(view.run);
  view.fresh = answered;
  return view;
}

RunStatus RunQuestions::status() {
  return query_or_throw<RunStatus>(RunStatusRequest{}, answer_patience);
}

MetricsRows RunQuestions::metrics(const MetricsRequest& request) {
  return query_or_throw<MetricsRows>(request, answer_patience);
}

CheckpointAnswer RunQuestions::checkpoint() {
  CheckpointAnswer made = query_or_throw<CheckpointAnswer>(CheckpointRequest{}, checkpoint_patience);
  forget();
  return made;
}

PauseAnswer RunQuestions::pause() {
  const auto answer = query<PauseAnswer>(PauseRequest{true}, pause_patience);
  forget();
  if (answer) return *answer;
  const RunStatus run = status();
  return {run.state, StepId(run.last_step)};
}

PauseAnswer RunQuestions::resume() {
  const PauseAnswer resumed = query_or_throw<PauseAnswer>(PauseRequest{false}, answer_patience);
  forget();
  return resumed;
}

std::optional<RunStatus> RunQuestions::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void RunQuestions::remember(const RunStatus& run) {
  const std::lock_guard lock(mutex_);
  if (!closed_) last_ = run;
}

void RunQuestions::forget() {
  const std::lock_guard lock(mutex_);
  last_.reset();
}

void RunQuestions::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& [mailbox, actor] : waiting_) caf::anon_send(actor, QuestionsClosed{});
  coordinator_ = nullptr;
  last_.reset();  // holds handles of actors
}

}  // namespace maestro
