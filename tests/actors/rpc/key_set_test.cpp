// SPDX-License-Identifier: Apache-2.0
#include "actors/rpc/key_set.hpp"

#include <gmock/gmock.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <fstream>

#include "tests/job/job_error.hpp"
#include "tests/observe/temporary_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using namespace std::chrono_literals;
using std::filesystem::path;
using std::filesystem::perms;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class KeySets : public TemporaryFolder {
 protected:
  [[nodiscard]] path made(const char* name, const KeySetOptions& options = {}) const {
    make_key_set(folder_ / name, options);
    return folder_ / name;
  }
  [[nodiscard]] static std::string load_error(const path& folder) {
    return job_error_of([&] { static_cast<void>(load_key_set(folder)); });
  }
  [[nodiscard]] std::string make_error(const path& folder, const KeySetOptions& options = {}) const {
    return job_error_of([&] { make_key_set(folder, options); });
  }
  static void overwrite(const path& file, const std::string& text) { std::ofstream(file) << text; }
  static perms mode_of(const path& file) { return std::filesystem::status(file).permissions(); }
};

class Certificate {
 public:
  explicit Certificate(const path& file) {
    std::FILE* const opened = std::fopen(file.c_str(), "r");
    if (opened == nullptr) return;
    certificate_ = PEM_read_X509(opened, nullptr, nullptr, nullptr);
    std::fclose(opened);
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;
  ~Certificate() { X509_free(certificate_); }
  X509* get() { return certificate_; }

 private:
  X509* certificate_ = nullptr;
};

TEST_F(KeySets, what_was_made_can_be_loaded) {  // KS-1
  const path folder = made("keys");
  const KeySet set = load_key_set(folder);
  EXPECT_EQ(set.certificate, folder / "node.pem");
  EXPECT_EQ(set.key, folder / "node.key");
  EXPECT_EQ(set.authority, folder / "ca.pem");
  EXPECT_THAT(set.token, MatchesRegex("[0-9a-f]{64}"));
}

TEST_F(KeySets, only_the_owner_can_read_them_and_the_authoritys_key_is_not_kept) {
  const path folder = made("keys");
  EXPECT_EQ(mode_of(folder), perms::owner_all);
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(mode_of(file), perms::owner_read | perms::owner_write) << file;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "ca.key"));
  EXPECT_TRUE(std::filesystem::exists(made("kept", {.keep_authority = true}) / "ca.key"));
}

TEST_F(KeySets, the_certificate_serves_clients_and_servers_of_the_hosts) {
  Certificate certificate(made("keys", {.hosts = {"alpha", "10.0.0.7", "fd00::2"}}) / "node.pem");
  ASSERT_NE(certificate.get(), nullptr);
  EXPECT_EQ(X509_check_purpose(certificate.get(), X509_PURPOSE_SSL_SERVER, 0), 1);
  EXPECT_EQ(X509_check_purpose(certificate.get(), X509_PURPOSE_SSL_CLIENT, 0), 1);
  EXPECT_EQ(X509_check_ca(certificate.get()), 0);
  EXPECT_EQ(X509_check_host(certificate.get(), "alpha", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_host(certificate.get(), "localhost", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_host(certificate.get(), "beta", 0, 0, nullptr), 0);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "10.0.0.7", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "127.0.0.1", 0), 1);
}

TEST_F(KeySets, nothing_is_overwritten) {  // KS-2
  const path folder = made("keys");
  const std::string token = contents_of(folder / "token");
  EXPECT_THAT(make_error(folder), AllOf(IsOneLine(), HasSubstr("is not empty")));
  EXPECT_EQ(contents_of(folder / "token"), token);
  const path file = folder_ / "file";
  overwrite(file, "x");
  EXPECT_THAT(make_error(file), AllOf(IsOneLine(), HasSubstr(file.string())));
  EXPECT_THAT(make_error(file / "keys"), AllOf(IsOneLine(), HasSubstr(file.string())));
  EXPECT_EQ(contents_of(file), "x");
}

TEST_F(KeySets, what_no_certificate_can_say_is_refused) {
  EXPECT_THAT(make_error(folder_ / "keys", {.days = 0}), HasSubstr("days = 0: keys are valid for 1 to"));
  EXPECT_THAT(make_error(folder_ / "keys", {.days = -1}), HasSubstr("days = -1"));
  for (const char* host : {"a,b", "a b", "", "a:b", "a\nb"}) {
    EXPECT_THAT(make_error(folder_ / "keys", {.hosts = {host}}), HasSubstr("neither a host name nor an address"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "keys"));
}

TEST_F(KeySets, an_expired_set_says_when_and_what_to_do) {
  const auto then = std::chrono::sys_days(std::chrono::year(2020) / 11 / 20) + 10h;
  const path folder = made("keys", {.begins = then - 24h, .ends = then});
  EXPECT_EQ(load_error(folder), (folder / "node.pem").string() +
                                    " expired on 2020-11-20 10:00 UTC; make a new set: maestro keys " +
                                    folder.string());
}

TEST_F(KeySets, a_set_of_the_future_says_when_it_begins) {
  const auto then = std::chrono::sys_days(std::chrono::year(2048) / 2 / 29);
  const path folder = made("keys", {.begins = then, .ends = then + 24h});
  EXPECT_THAT(load_error(folder), AllOf(IsOneLine(), HasSubstr("node.pem is not valid before 2048-02-29 00:00 UTC")));
}

TEST_F(KeySets, a_key_or_token_that_others_can_read_is_refused) {  // KS-1
  for (const char* name : {"node.key", "token"}) {
    const path folder = made(name);
    std::filesystem::permissions(folder / name, perms::group_read, std::filesystem::perm_options::add);
    EXPECT_THAT(load_error(folder), AllOf(IsOneLine(), HasSubstr("can be read by others; chmod 600 "), EndsWith(name)));
  }
}

TEST_F(KeySets, parts_of_another_set_are_refused) {  // KS-1
  const path other = made("other");
  const auto mixed = [&](const char* name) {
    const path folder = made((std::string("with_") + name).c_str());
    std::filesystem::copy(other / name, folder / name, std::filesystem::copy_options::overwrite_existing);
    return load_error(folder);
  };
  EXPECT_THAT(mixed("node.key"), AllOf(IsOneLine(), HasSubstr("node.key is not the key of")));
  EXPECT_THAT(mixed("node.pem"), AllOf(IsOneLine(), HasSubstr("node.key is not the key of")));
  EXPECT_THAT(mixed("ca.pem"), AllOf(IsOneLine(), HasSubstr("is not signed by"), HasSubstr("ca.pem")));
}

TEST_F(KeySets, a_missing_file_is_named) {
  for (const char* name : {"node.pem", "node.key", "ca.pem", "token"}) {
    const path folder = made(name);
    std::filesystem::remove(folder / name);
    EXPECT_EQ(load_error(folder),
              (folder / name).string() + " is missing; make a new set: maestro keys " + folder.string());
    std::filesystem::create_directory(folder / name);
    EXPECT_THAT(load_error(folder), HasSubstr(" is not a regular file")) << name;
  }
  EXPECT_THAT(load_error(folder_ / "nowhere"), HasSubstr("nowhere/node.pem is missing"));
}

TEST_F(KeySets, a_damaged_file_is_named) {
  for (const char* name : {"node.pem", "node.key", "ca.pem", "token"}) {
    for (const char* text : {"", "two words\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}) {
      const path folder = made((name + std::to_string(files_in_folder())).c_str());
      overwrite(folder / name, text);
      EXPECT_THAT(load_error(folder), AllOf(IsOneLine(), HasSubstr((folder / name).string() + " holds no "))) << text;
    }
  }
}

TEST(RandomToken, tokens_differ) {
  EXPECT_THAT(random_token(), MatchesRegex("[0-9a-f]{64}"));
  EXPECT_NE(random_token(), random_token());
}

}  // namespace
}  // namespace maestro
