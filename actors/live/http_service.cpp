// SPDX-License-Identifier: Apache-2.0
#include "actors/live/http_service.hpp"

#include <charconv>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "actors/control/control_text.hpp"
#include "actors/control/control_types.h"
#include "actors/control/run_answers.hpp"
#include "actors/control/run_questions.hpp"
#include "actors/live/health.hpp"
#include "actors/live/http_address.hpp"
#include "actors/live/http_server.hpp"
#include "actors/live/live_page.hpp"
#include "actors/live/run_metrics.hpp"
#include "runtime/observe/max_rss.hpp"
#include "runtime/observe/metrics.hpp"
#include "runtime/record/record_lines.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds page_age(1000);
constexpr const char* paths = "/, /metrics, /healthz, /readyz, /status.json and /metrics.jsonl?from=STEP";

HttpAnswer line(int status, const std::string& text) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::make_shared<const std::string>(text + '\n');
  return answer;
}

/// A value that get() recomputes after `age`. Threads that call get() during the computation share the value or the
/// exception.
template <class Value>
class Shared {
 public:
  Shared(std::chrono::milliseconds age, std::function<Value()> make) : age_(age), make_(std::move(make)) {}
  [[nodiscard]] std::shared_ptr<const Value> get() {
    const std::lock_guard lock(mutex_);
    if (!made_at_ || Clock::now() - *made_at_ > age_) make();
    if (failure_) std::rethrow_exception(failure_);
    return value_;
  }

 private:
  void make() {
    failure_ = nullptr;
    try {
      value_ = std::make_shared<const Value>(make_());
    } catch (const std::exception&) {
      failure_ = std::current_exception();
    }
    made_at_ = Clock::now();
  }
  const std::chrono::milliseconds age_;
  const std::function<Value()> make_;
  std::mutex mutex_;  // guards the members below
  std::shared_ptr<const Value> value_;
  std::exception_ptr failure_;
  std::optional<Clock::time_point> made_at_;
};

/// The run's state at a moment.
struct Sight {
  RunStatus run;
  control::Status status;
};

}  // namespace

struct HttpService::State {
  explicit State(HttpServiceOptions given);
  [[nodiscard]] HttpAnswer answer(const HttpRequest& request);
  [[nodiscard]] std::optional<HttpAnswer> refusal(const HttpRequest& request) const;
  [[nodiscard]] Sight look();
  [[nodiscard]] HttpAnswer health();
  [[nodiscard]] HttpAnswer readiness();
  [[nodiscard]] HttpAnswer record(const HttpRequest& request) const;
  [[nodiscard]] std::string metrics();
  [[nodiscard]] std::string body();

  HttpServiceOptions options;
  SocketAddress address;
  RunQuestions questions;
  Shared<Sight> sight;
  Shared<std::string> metrics_answer;
  Shared<std::string> status_answer_text;
  LivePage page;  // used only by `page_body`
  Shared<std::string> page_body;
  Shared<std::string> whole_page;
  std::mutex judging;  // guards `judge`
  HealthJudge judge;
  std::atomic<bool> ready = false;
  std::unique_ptr<HttpServer> server;  // last: its threads use all above
};

HttpService::State::State(HttpServiceOptions given)
    : options(std::move(given)),
      address(parse_http_address(options.address)),
      questions(*options.system, options.coordinator),
      sight(options.answer_age, [this] { return look(); }),
      metrics_answer(options.answer_age, [this] { return metrics(); }),
      status_answer_text(options.answer_age, [this] { return json_text(sight.get()->status) + '\n'; }),
      page(*options.job, options.keeps_record),
      page_body(page_age, [this] { return body(); }),
      whole_page(page_age, [this] { return page.whole(*page_body.get()); }),
      judge(options.job->train.stall_timeout_s) {
  options.coordinator = nullptr;
  if (!on_this_host_only(address) && !options.keys) check_http_address(options.address, false);
  HttpServerOptions serving;
  serving.address = address.text();
  serving.headers = {
      {"Cache-Control", "no-store"},
      {"Content-Security-Policy",
       "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"}};
  serving.answer = [this](const HttpRequest& request) { return answer(request); };
  server = std::make_unique<HttpServer>(std::move(serving));
}

std::optional<HttpAnswer> HttpService::State::refusal(const HttpRequest& request) const {
  if (on_this_host_only(address)) {
    if (names_this_host(request.host)) return std::nullopt;
    return line(403, "this page is only for clients on its host: use http://" + server->address() + "/");
  }
  constexpr std::string_view bearer = "Bearer ";
  std::string token;
  if (request.authorization.starts_with(bearer)) token = request.authorization.substr(bearer.size());
  if (const auto given = request.parameters.find("token"); token.empty() && given != request.parameters.end()) {
    token = given->second;
  }
  if (same_secret(token, options.keys->token)) return std::nullopt;
  HttpAnswer answer = line(401, "give the run's token: \"Authorization: Bearer TOKEN\", or ?token=TOKEN");
  answer.stranger = true;
  return answer;
}

HttpAnswer HttpService::State::answer(const HttpRequest& request) {
  if (auto refused = refusal(request)) return *std::move(refused);
  HttpAnswer answer;
  if (request.path == "/healthz") return health();
  if (request.path == "/readyz") return readiness();
  if (request.path == "/metrics.jsonl") return record(request);
  if (request.path == "/metrics") {
    answer.content_type = MetricRegistry::content_type;
    answer.body = metrics_answer.get();
  } else if (request.path == "/status.json") {
    answer.content_type = "application/json";
    answer.body = status_answer_text.get();
  } else if (request.path == "/" || request.path == "/page-body") {
    answer.content_type = "text/html; charset=utf-8";
    answer.body = request.path == "/" ? whole_page.get() : page_body.get();
  } else {
    return line(404, "there is no " + request.path.substr(0, 100) + "; there are " + paths);
  }
  return answer;
}

Sight HttpService::State::look() {
  RunQuestions::View view = questions.view(options.status_patience);
  // On a busy machine this thread may have slept past its patience while the answer arrived.
  try {
    if (!view.fresh) view.run = questions.status();
  } catch (const JobError& problem) {
    if (problem.code() != ErrorCode::timeout) throw;  // keep the last state; its times determine the health
  }
  return {view.run, status_answer(*options.job, view.run, view.replicas)};
}

std::string HttpService::State::metrics() {
  constexpr double bytes_of_mb = 1e6;
  const auto seen = sight.get();
  ProcessFigures process;
  process.version = options.version;
  process.instruction_set = options.instruction_set;
  const ProcessSummary summary = options.summary();
  process.memory_bytes["host"] = summary.max_rss_mb * bytes_of_mb;
  for (const auto& [device, mb] : summary.device_mb) process.memory_bytes[device] = mb * bytes_of_mb;
  process.rma_bytes = summary.bytes;
  process.left_out_before = options.job->corpus->left_out();
  return metrics_text(seen->status, seen->run, options.job->graph, process);
}

std::string HttpService::State::body() {
  const auto seen = sight.get();
  return page.body(seen->status, seen->run.figures);
}

HttpAnswer HttpService::State::health() {
  const auto seen = sight.get();
  const std::lock_guard lock(judging);
  const auto verdict = judge.judge(seen->run, options.events->load(std::memory_order_relaxed), Clock::now());
  return line(verdict.healthy ? 200 : 503, (verdict.healthy ? "healthy: " : "unhealthy: ") + verdict.reason);
}

HttpAnswer HttpService::State::readiness() {
  if (ready) return line(200, "ready");
  const RunStatus& run = sight.get()->run;
  // Once a unit is planned, its work items have been sent.
  if (run.state == RunState::starting || !(run.planned || run.figures.last_end)) {
    return line(503, "not ready: the first pass has not begun");
  }
  ready = true;
  return line(200, "ready");
}

HttpAnswer HttpService::State::record(const HttpRequest& request) const {
  std::uint64_t first = 1;
  if (const auto given = request.parameters.find("from"); given != request.parameters.end()) {
    const std::string& text = given->second;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), first);
    if (failure != std::errc() || end != text.data() + text.size())
      return line(400, "from must be the number of a step");
  }
  if (!options.keeps_record) return line(404, "a run on emulated devices keeps no record");
  const auto file = std::filesystem::path(options.job->train.out) / record_folder / steps_file;
  const Result<std::string> lines = lines_from_step(file, first);
  if (!lines) return line(503, lines.error().message);
  HttpAnswer answer;
  answer.content_type = "application/jsonl";
  answer.body = std::make_shared<const std::string>(*lines);
  return answer;
}

HttpService::HttpService(HttpServiceOptions options) : state_(std::make_unique<State>(std::move(options))) {}

HttpService::~HttpService() {
  stop();
}

std::string HttpService::address() const {
  return state_->server->address();
}

void HttpService::stop() {
  state_->questions.close();
  state_->server->stop();
}

}  // namespace maestro
