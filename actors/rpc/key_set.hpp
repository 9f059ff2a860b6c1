// SPDX-License-Identifier: Apache-2.0
// Credentials between a job's hosts: a certificate of the job's authority, and the job's token. All processes of a job
// use the same set; its certificate is valid for servers and for clients.
//
// KS-1 (consistent set): in a loaded set the key belongs to the certificate, the authority has signed the certificate,
//       both certificates are in force, and only the files' owner can read the key and the token.
// KS-2 (all or nothing): make_key_set overwrites nothing, and removes its files if it fails.
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
  std::int64_t days = 365;              ///< validity from now; certificates begin an hour ago, for differing clocks
  std::vector<std::string> hosts = {};  ///< names and addresses in the certificate, besides this machine's
  bool keep_authority = false;          ///< also write ca.key, which can sign more certificates of this job
  std::optional<std::chrono::sys_seconds> begins = std::nullopt;  ///< begin, instead of an hour ago
  std::optional<std::chrono::sys_seconds> ends = std::nullopt;    ///< end, instead of `days` from now
};

/// Loads a set. Throws JobError, a single line that names the file and the remedy, for files that are missing,
/// unreadable or damaged, a key or token that others can read, a key of another certificate, and a certificate of
/// another authority or outside its validity.
[[nodiscard]] KeySet load_key_set(const std::filesystem::path& folder);

/// Creates the folder (0700) with the files of a new authority (0600): EC P-256, SHA-256. Throws JobError if the folder
/// is not empty or cannot be written, for days below 1, and for a host that a certificate cannot name.
void make_key_set(const std::filesystem::path& folder, const KeySetOptions& options);

/// Returns 256 random bits from OpenSSL's generator, as 64 hexadecimal digits.
[[nodiscard]] std::string random_token();

/// Returns whether the texts are equal; the time of the comparison depends only on their sizes.
[[nodiscard]] bool same_secret(const std::string& given, const std::string& secret);

}  // namespace maestro
