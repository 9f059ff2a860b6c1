// SPDX-License-Identifier: Apache-2.0
#include "actors/control/control_service.hpp"

#include <atomic>
#include <caf/all.hpp>

#include "actors/control/Control.h"
#include "actors/control/control_place.hpp"
#include "actors/control/run_answers.hpp"
#include "actors/control/run_questions.hpp"
#include "actors/rpc/rpc_server.hpp"
#include "actors/rpc/socket_address.hpp"
#include "runtime/files/atomic_file.hpp"

namespace maestro {
namespace {

constexpr std::int32_t most_rows = 10000;
constexpr int most_refusals_printed = 20;

[[noreturn]] void refuse(const std::string& reason) {
  control::Refused refused;
  refused.reason = reason;
  throw refused;
}

control::Standing standing(const PauseAnswer& answer) {
  control::Standing result;
  result.state = static_cast<control::State::type>(answer.state);
  result.step = static_cast<std::int64_t>(answer.step.value());
  return result;
}

/// Makes a call; errors of the run become the exception that control.thrift declares.
template <class Call>
auto answered(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const JobError& error) {
    refuse(error.what());
  }
}

}  // namespace

struct ControlService::State {
  explicit State(ControlServiceOptions given);
  void prepare_token();
  void check_token(Visitor& client, const std::string& given);
  void report_refusal(const std::string& peer, const std::string& reason);
  void stop();

  ControlServiceOptions options;
  RunQuestions questions;
  SocketAddress address;           // as requested; `server` has the port
  std::string token;               // empty on a local socket
  std::filesystem::path token_at;  // written by this service; else empty
  std::atomic<int> refusals = 0;
  std::unique_ptr<RpcServer> server;  // last: its threads use all above
};

namespace {

/// Handles a single client's calls.
template <class Service>
class ControlHandler final : public control::ControlIf {
 public:
  ControlHandler(Service& service, Visitor& client) : service_(service), client_(client) {}

  void status(control::Status& answer, const std::string& token) override {
    service_.check_token(client_, token);
    const auto view = answered([&] { return service_.questions.view(service_.options.status_patience); });
    answer = status_answer(*service_.options.job, view.run, view.replicas);
  }
  void plan(control::Plan& answer, const std::string& token) override {
    service_.check_token(client_, token);
    const RunStatus run = answered([&] { return service_.questions.status(); });
    answer = plan_answer(*service_.options.job, run);
  }
  void metrics(control::Metrics& answer, const std::string& token, const std::int64_t first_step_row,
               const std::int64_t first_validation_row, const std::int32_t most) override {
    service_.check_token(client_, token);
    if (most < 1 || most > most_rows) refuse("most must be 1 to " + std::to_string(most_rows));
    const MetricsRequest request{first_step_row, first_validation_row, most};
    answer = metrics_answer(answered([&] { return service_.questions.metrics(request); }));
  }
  void checkpoint(control::Checkpoint& answer, const std::string& token) override {
    service_.check_token(client_, token);
    const CheckpointAnswer made = answered([&] { return service_.questions.checkpoint(); });
    if (!made.refusal.empty()) refuse(made.refusal);
    answer.step = static_cast<std::int64_t>(made.step.value());
    answer.path = made.path;
  }
  void pause(control::Standing& answer, const std::string& token) override {
    service_.check_token(client_, token);
    answer = standing(answered([&] { return service_.questions.pause(); }));
  }
  void resume(control::Standing& answer, const std::string& token) override {
    service_.check_token(client_, token);
    answer = standing(answered([&] { return service_.questions.resume(); }));
  }
  void join(control::JoinTerms& answer, const std::string& token, const std::string& section,
            const std::string& devices, const std::string& host) override {
    service_.check_token(client_, token);
    const bool here = on_this_host_only(service_.address);
    const JoinTerms terms = answered([&] { return service_.options.let_join({section, devices, host, here}); });
    answer.process = static_cast<std::int32_t>(terms.process.value());
    answer.command = terms.command;
    answer.variables = terms.variables;
    answer.folder = terms.folder;
  }
  void leave(control::Leaving& answer, const std::string& token, const std::int32_t process) override {
    service_.check_token(client_, token);
    if (process < 0) refuse("processes count from 0");
    answer.process = process;
    answer.text = answered([&] { return service_.options.let_leave(ProcessId(static_cast<std::uint32_t>(process))); });
  }
  void stop(control::Standing& answer, const std::string& token) override {
    service_.check_token(client_, token);
    if (answered([&] { return service_.questions.status(); }).state == RunState::starting) {
      refuse("the run has not begun yet");
    }
    service_.options.stop_run();
    const RunStatus run = answered([&] { return service_.questions.status(); });
    answer = standing({run.state, StepId(run.stops_after.value_or(run.last_step))});
  }

 private:
  Service& service_;
  Visitor& client_;
};

}  // namespace

ControlService::State::State(ControlServiceOptions given)
    : options(std::move(given)),
      questions(*options.system, options.coordinator),
      address(parse_socket_address(options.address.empty() ? default_control_address() : options.address)) {
  options.coordinator = nullptr;
  const bool here = on_this_host_only(address);
  if (!here && !options.keys) {
    throw JobError("--control " + address.text() + ": other hosts reach it, so it needs --keys (see `maestro keys`)");
  }
  AcceptorOptions acceptor_options;
  acceptor_options.address = address.text();
  if (!here) acceptor_options.keys = options.keys;
  acceptor_options.refused = [this](const std::string& peer, const std::string& reason) {
    report_refusal(peer, reason);
  };
  if (!address.local()) token = options.keys ? options.keys->token : random_token();
  server = std::make_unique<RpcServer>(std::move(acceptor_options), [this](Visitor& client) {
    return std::make_shared<control::ControlProcessor>(std::make_shared<ControlHandler<State>>(*this, client));
  });
  if (!address.local() && here) prepare_token();
}

/// Writes the token file for this user's clients on this host.
void ControlService::State::prepare_token() {
  token_at = token_file(server->address());
  write_file(token_at, token + "\n").value_or_throw();
  std::filesystem::permissions(token_at, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

void ControlService::State::check_token(Visitor& client, const std::string& given) {
  if (address.local() || same_secret(given, token)) return client.admit();
  report_refusal(client.name(), "wrong token");
  refuse("wrong token");
}

void ControlService::State::report_refusal(const std::string& peer, const std::string& reason) {
  if (options.console == nullptr) return;
  const int count = ++refusals;
  if (count > most_refusals_printed) return;
  options.console->note("control: " + peer + " was refused: " + reason +
                        (count == most_refusals_printed ? " (further refusals are not printed)" : ""));
}

void ControlService::State::stop() {
  questions.close();
  server->stop();
  std::error_code gone_already;
  if (!token_at.empty()) std::filesystem::remove(token_at, gone_already);
}

ControlService::ControlService(ControlServiceOptions options) : state_(std::make_unique<State>(std::move(options))) {}

ControlService::~ControlService() {
  stop();
}

std::string ControlService::address() const {
  return state_->server->address();
}

void ControlService::stop() {
  state_->stop();
}

}  // namespace maestro
