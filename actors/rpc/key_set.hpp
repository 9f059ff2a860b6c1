// SPDX-License-Identifier: Apache-2.0
// Credentials of a process of a job between hosts: a certificate of the job's authority, and the job's token. The same
// set serves every process of a job; its certificate is valid for servers and for clients.
//
// KS-1 (whole set): a loaded set is consistent: the key belongs to the certificate, this authority has signed it, both
//       are in force, and only the owner of the files can read the key and the token.
// KS-2 (all or nothing): make_key_set overwrites nothing, and when it fails it leaves none of its files behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace maestro {

struct KeySet {
  std::filesystem::path folder;
  std::filesystem::path certificate;  ///< node.pem
  std::filesystem::path key;          ///< node.key, private
  std::filesystem::path authority;    ///< ca.pem, signs the certificates of this job
  std::string token;                  ///< secret of the job
};

struct KeySetOptions {
  std::int64_t days = 365;              ///< from now; certificates begin an hour ago, for differing clocks
  std::vector<std::string> hosts = {};  ///< names and addresses in the certificate, besides this machine's
  bool keep_authority = false;          ///< also write ca.key, with which more certificates of this job can be signed
  std::optional<std::chrono::sys_seconds> begins = std::nullopt;  ///< instead of an hour ago
  std::optional<std::chrono::sys_seconds> ends = std::nullopt;    ///< instead of `days` from now
};

/// Throws JobError, a single line that names the file and the remedy: missing, unreadable or damaged, key or token that
/// others can read, key of another certificate, certificate of another authority, expired, not yet valid.
[[nodiscard]] KeySet load_key_set(const std::filesystem::path& folder);

/// Creates the folder (0700) with the files of a new authority (0600): EC P-256, SHA-256. Throws JobError: the folder
/// is not empty, cannot be written, days below 1, a host that no certificate can name.
void make_key_set(const std::filesystem::path& folder, const KeySetOptions& options);

/// Returns 256 random bits from OpenSSL's generator, as 64 hexadecimal digits.
[[nodiscard]] std::string random_token();

/// Whether the texts are equal; the time that this takes depends on their sizes alone.
[[nodiscard]] bool same_secret(const std::string& given, const std::string& secret);

}  // namespace maestro
