// SPDX-License-Identifier: Apache-2.0
// Judges the join requests of a job's processes: admission of each, and completeness. Pure.
//
// GA-1 (admission): a process is admitted only if its token, version, number of processes and job equal those of rank 0
//       and its rank is free. The checks run in this order: a process without the token learns nothing else.
// GA-2 (blame): a process without the token is refused alone. Any other mismatch is within this job, and the whole job
//       cannot begin.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace maestro {

/// Description that a process sends of itself.
struct JoinRequest {
  std::int64_t rank = 0;
  std::int64_t processes = 1;
  std::int64_t pid = 0;
  std::string host;  ///< as the process names it
  std::int64_t local_rank = 0;
  std::string version;  ///< of maestro
  std::string token;    ///< of the job; empty: none is set
  std::string job;      ///< effective job, TOML, and all other data that must be equal in all processes
};

/// Reason why a process was not admitted, a single line.
struct Refusal {
  std::string reason;
  bool for_all = false;  ///< the job cannot begin
};

class JoinCheck {
 public:
  /// `own`: of rank 0, which is present from the start. `hosts`: by rank; a running job may have more of them than
  /// JoinRequest::processes, which counts those of the start.
  JoinCheck(JoinRequest root, std::vector<std::uint32_t> hosts);

  /// Whether the request has the token of the job.
  [[nodiscard]] bool knows_token(const JoinRequest& process) const;
  /// Returns nothing when the process is admitted.
  [[nodiscard]] std::optional<Refusal> admit(const JoinRequest& process);
  [[nodiscard]] bool complete() const { return present_.size() == hosts_.size(); }
  /// Returns the admitted processes by rank, with rank 0.
  [[nodiscard]] std::vector<JoinRequest> present() const;
  /// Returns "processes 2 and 3 (host 1)", "process 1 (host 0), processes 2-7 (host 1)"; empty when complete.
  [[nodiscard]] std::string missing_text() const;

 private:
  [[nodiscard]] std::string with_root(const std::string& of_root, const std::string& of_other,
                                      const JoinRequest& other) const;

  JoinRequest root_;
  std::vector<std::uint32_t> hosts_;
  std::map<std::int64_t, JoinRequest> present_;  // by rank
};

/// Returns "rank 2 (pid 4711 on alpha)".
[[nodiscard]] std::string process_name(const JoinRequest& process);

/// Returns the first setting in which two jobs differ: "student.lr = 0.001 on a (rank 0), 0.0003 on b (rank 1)"; empty:
/// none. Jobs are TOML as JobDocument::to_toml writes it: a setting begins on a line of its own.
[[nodiscard]] std::string job_difference(const JoinRequest& a, const JoinRequest& b);

}  // namespace maestro
