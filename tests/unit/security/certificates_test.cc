// Certificates, roles and join tokens: what holds, and what each refusal says.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/secret_file.h"
#include "base/tls_identity.h"
#include "security/authority.h"
#include "security/certificate.h"
#include "security/issue_book.h"
#include "security/join_token.h"
#include "security/places.h"
#include "security/subject.h"

namespace meshwright::security {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kNowS = 1'800'000'000;

mode_t ModeOf(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 ? found.st_mode & 07777U : 0;
}

class Certificates : public ::testing::Test {
 protected:
  Authority MakeAuthority(const std::string& name) {
    return Authority::Create(dir_.File(name), kNowS).value();
  }
  TlsIdentity Issue(const Authority& authority, Role role, const std::string& name,
                    int64_t life_s = kDayS) {
    const std::string folder = dir_.File(fmt::format("{}-{}", RoleName(role), name));
    const Status issued = IssueTo(folder, authority, {{role, name}, {}, kNowS, life_s});
    EXPECT_TRUE(issued.ok()) << issued;
    return LoadTlsIdentity(folder).value();
  }

  TempDir dir_ = TempDir::Make().value();
};

TEST_F(Certificates, RenewedInPlaceKeepTheNamesThatTheyHave) {
  const Authority authority = MakeAuthority("ca");
  const std::string folder = dir_.File("controller");
  const auto issue = [&](Role role, std::vector<std::string> hosts) {
    EXPECT_TRUE(IssueTo(folder, authority, {{role, "x"}, std::move(hosts), kNowS}).ok());
    return ReadCertificate(LoadTlsIdentity(folder).value().cert_pem).value().names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(issue(Role::kController, {"head", "fd00::1"}),
            (Names{"controller.meshwright", "head", "fd00::1"}));
  EXPECT_EQ(issue(Role::kController, {"10.0.0.2", "head"}),
            (Names{"controller.meshwright", "10.0.0.2", "head", "fd00::1"}));
  EXPECT_EQ(issue(Role::kOperator, {}), Names{}) << "of another role it is another certificate";
}

TEST_F(Certificates, OfEachRoleNameTheirHolder) {
  const Authority authority = MakeAuthority("ca");
  for (const Role role : {Role::kController, Role::kWorker, Role::kOperator, Role::kViewer}) {
    const TlsIdentity identity = Issue(authority, role, "w-0.example_1");
    const auto subject = CheckIdentity(identity, {role}, kNowS);
    ASSERT_TRUE(subject.has_value()) << subject.error();
    EXPECT_EQ(*subject, (Subject{role, "w-0.example_1"}));
  }
}

TEST_F(Certificates, AreFilesThatOnlyTheirOwnerReads) {
  const Authority authority = MakeAuthority("ca");
  (void)Issue(authority, Role::kWorker, "w0");
  const std::string folder = dir_.File("worker-w0");
  EXPECT_EQ(ModeOf(folder), 0700U);
  EXPECT_EQ(ModeOf(folder + "/key.pem"), 0600U);
  EXPECT_EQ(ModeOf(dir_.File("ca")), 0700U);
  EXPECT_EQ(ModeOf(dir_.File("ca/key.pem")), 0600U);
  for (const mode_t open : {0640U, 0604U, 0660U}) {
    ASSERT_EQ(::chmod((folder + "/key.pem").c_str(), open), 0);
    const auto refused = LoadTlsIdentity(folder);
    ASSERT_FALSE(refused.has_value()) << open;
    EXPECT_EQ(refused.error().code(), StatusCode::kPermissionDenied);
    EXPECT_THAT(refused.error().message(), HasSubstr("chmod 600 " + folder + "/key.pem"));
  }
  ASSERT_EQ(::chmod((folder + "/key.pem").c_str(), 0400), 0);
  EXPECT_TRUE(LoadTlsIdentity(folder).has_value());
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  EXPECT_THAT(LoadTlsIdentity(folder).error().message(), HasSubstr("chmod go-w " + folder));
}

TEST_F(Certificates, AuthorityIsNotReadWhenOthersCouldReadItsKey) {
  (void)MakeAuthority("ca");
  ASSERT_EQ(::chmod(dir_.File("ca/key.pem").c_str(), 0644), 0);
  const auto refused = Authority::Load(dir_.File("ca"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kPermissionDenied);
}

TEST_F(Certificates, AuthorityIsNotMadeTwice) {
  (void)MakeAuthority("ca");
  const auto second = Authority::Create(dir_.File("ca"), kNowS);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), StatusCode::kAlreadyExists);
}

TEST_F(Certificates, RefusalsSayWhatIsWrong) {
  const Authority authority = MakeAuthority("ca");
  const Authority other = MakeAuthority("other");
  const TlsIdentity worker = Issue(authority, Role::kWorker, "w0");
  const auto message = [](const TlsIdentity& identity, Role role, int64_t now_s) {
    const auto checked = CheckIdentity(identity, {role}, now_s);
    return checked.has_value() ? "" : checked.error().message();
  };
  EXPECT_EQ(message(worker, Role::kWorker, kNowS), "");
  EXPECT_THAT(message(worker, Role::kWorker, kNowS + kDayS + 1),
              AllOf(HasSubstr("worker 'w0' ended on 2027-01-16"),
                    HasSubstr("meshwright cert issue worker w0")));
  EXPECT_THAT(message(worker, Role::kWorker, kNowS - kDayS), HasSubstr("clock"));
  EXPECT_THAT(message(worker, Role::kOperator, kNowS),
              AllOf(HasSubstr("that of worker 'w0'"), HasSubstr("the role operator is needed")));
  TlsIdentity foreign = worker;
  foreign.ca_pem = other.ca_pem();
  EXPECT_THAT(message(foreign, Role::kWorker, kNowS), HasSubstr("not signed by the authority"));
}

TEST_F(Certificates, KeyAndCertificateMustFit) {
  const Authority authority = MakeAuthority("ca");
  (void)Issue(authority, Role::kWorker, "w0");
  (void)Issue(authority, Role::kWorker, "w1");
  const std::string folder = dir_.File("worker-w0");
  ASSERT_TRUE(
      WriteFileAtomic(folder + "/cert.pem", ReadFile(dir_.File("worker-w1/cert.pem")).value())
          .ok());
  const auto mixed = LoadTlsIdentity(folder);
  ASSERT_FALSE(mixed.has_value());
  EXPECT_THAT(mixed.error().message(), HasSubstr("is not the key of"));
  ASSERT_TRUE(WriteFileAtomic(folder + "/cert.pem", "nothing").ok());
  EXPECT_THAT(LoadTlsIdentity(folder).error().message(), HasSubstr("cert.pem has no certificate"));
}

TEST_F(Certificates, AreIssuedAnewWithTheSameKey) {
  const Authority authority = MakeAuthority("ca");
  const TlsIdentity first = Issue(authority, Role::kWorker, "w0");
  const TlsIdentity second = Issue(authority, Role::kWorker, "w0", 2 * kDayS);
  EXPECT_EQ(first.key_pem, second.key_pem);
  EXPECT_NE(first.cert_pem, second.cert_pem);
  EXPECT_EQ(ReadCertificate(second.cert_pem)->not_after_s, kNowS + 2 * kDayS);
}

TEST_F(Certificates, RequestsMustBeWholeAndNamesPlain) {
  const Authority authority = MakeAuthority("ca");
  const KeyRequest request = MakeKeyRequest().value();
  EXPECT_FALSE(authority.Sign("no request", {{Role::kWorker, "w0"}, {}, kNowS}).has_value());
  std::string damaged = request.request_pem;
  damaged[damaged.size() / 2] = damaged[damaged.size() / 2] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(authority.Sign(damaged, {{Role::kWorker, "w0"}, {}, kNowS}).has_value());
  // What would be read as further names or extensions.
  for (const char* name : {"", "w0,DNS:controller.meshwright", "a b", "w\n0", "w/0"}) {
    EXPECT_FALSE(
        authority.Sign(request.request_pem, {{Role::kWorker, name}, {}, kNowS}).has_value())
        << name;
  }
  const CertificateOrder disguised{{Role::kWorker, "w0"}, {"controller.meshwright"}, kNowS};
  EXPECT_FALSE(authority.Sign(request.request_pem, disguised).has_value())
      << "a worker would pass for a controller";
}

TEST(Subjects, AreReadFromUrisAndNothingElse) {
  EXPECT_EQ(ParseUri("meshwright://worker/w0"), (Subject{Role::kWorker, "w0"}));
  EXPECT_EQ(FormatUri({Role::kViewer, "ann"}), "meshwright://viewer/ann");
  for (const char* wrong :
       {"", "meshwright://worker/", "meshwright://root/w0", "meshwright://worker",
        "https://worker/w0", "meshwright://worker/a/b"}) {
    EXPECT_EQ(ParseUri(wrong), std::nullopt) << wrong;
  }
}

TEST(Places, KnowThisMachine) {
  for (const char* here : {"127.0.0.1:7700", "localhost:7700", "[::1]:7700", "unix:/run/x", "::1",
                           "127.5.0.1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(here)) << here;
  }
  for (const char* away : {"10.0.0.1:7700", "head:7700", "0.0.0.0", "127.example.org:7700",
                           "::", "[2001:db8::1]:7700"}) {
    EXPECT_FALSE(IsLoopback(away)) << away;
  }
}

// ---- Join tokens --------------------------------------------------------------------------------

class JoinTokens : public ::testing::Test {
 protected:
  std::string Mint(JoinToken token) {
    if (token.authority_sha256.empty()) token.authority_sha256 = std::string(64, 'a');
    return MintJoinToken(secret_, token).value();
  }

  const std::string secret_ = "only the authority knows";
};

TEST_F(JoinTokens, SayWhatTheyAreFor) {
  const std::string text = Mint({"", kNowS + 60, "w0", true});
  const auto token = CheckJoinToken(secret_, text + "\n", kNowS);
  ASSERT_TRUE(token.has_value()) << token.error();
  EXPECT_EQ(token->authority_sha256, std::string(64, 'a'));
  EXPECT_EQ(token->expires_s, kNowS + 60);
  EXPECT_EQ(token->name, "w0");
  EXPECT_TRUE(token->once);
  EXPECT_NE(Mint({"", kNowS + 60, "w0", true}), text) << "two tokens must differ";
}

TEST_F(JoinTokens, HoldUntilTheyEnd) {
  const std::string text = Mint({"", kNowS, "", false});
  EXPECT_TRUE(CheckJoinToken(secret_, text, kNowS).has_value());
  const auto late = CheckJoinToken(secret_, text, kNowS + 1);
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(late.error().message(), HasSubstr("ended on 2027-01-15"));
}

TEST_F(JoinTokens, ChangedInAnyPlaceAreRefused) {
  const std::string text = Mint({"", kNowS + 60, "w0", false});
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == 'B' ? 'C' : 'B';
    const auto checked = CheckJoinToken(secret_, changed, kNowS);
    // The last letter may have bits that nobody reads.
    if (i + 1 == text.size() && checked.has_value()) continue;
    EXPECT_FALSE(checked.has_value()) << i;
  }
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    EXPECT_FALSE(CheckJoinToken(secret_, text.substr(0, bytes), kNowS).has_value()) << bytes;
  }
  EXPECT_FALSE(CheckJoinToken("another authority", text, kNowS).has_value());
}

TEST_F(JoinTokens, OfOneAuthorityAreNoneOfAnother) {
  const TempDir dir = TempDir::Make().value();
  const Authority one = Authority::Create(dir.File("one"), kNowS).value();
  const Authority two = Authority::Create(dir.File("two"), kNowS).value();
  EXPECT_EQ(one.Secret(kJoinPurpose), Authority::Load(dir.File("one"))->Secret(kJoinPurpose));
  EXPECT_NE(one.Secret(kJoinPurpose), two.Secret(kJoinPurpose));
  EXPECT_NE(one.Secret(kJoinPurpose), one.Secret("something else"));
}

// ---- The book of certificates -------------------------------------------------------------------

class Books : public ::testing::Test {
 protected:
  std::unique_ptr<IssueBook> Open(int64_t now_s = kNowS) {
    auto book = IssueBook::Open(dir_.File("issued.jsonl"), now_s);
    EXPECT_TRUE(book.has_value()) << book.error();
    return *std::move(book);
  }
  TempDir dir_ = TempDir::Make().value();
  const JoinToken any_{"", kNowS + 60, "", false, false, "01"};
};

TEST_F(Books, OneNameIsNotGivenToTwoHosts) {
  auto book = Open();
  EXPECT_TRUE(book->Admit(any_, {"w0", "key-a", kNowS + 100}, kNowS).ok());
  EXPECT_TRUE(book->Admit(any_, {"w0", "key-a", kNowS + 100}, kNowS).ok()) << "the same host again";
  for (const bool reopened : {false, true}) {
    if (reopened) book = Open();
    const Status other = book->Admit(any_, {"w0", "key-b", kNowS + 100}, kNowS);
    EXPECT_EQ(other.code(), StatusCode::kPermissionDenied);
    EXPECT_THAT(other.message(), HasSubstr("cert join-token --name w0"));
  }
  EXPECT_TRUE(
      book->Admit({"", kNowS + 60, "w0", false, false, "02"}, {"w0", "key-b", kNowS + 100}, kNowS)
          .ok())
      << "a token for this name";
}

TEST_F(Books, NameIsFreeWhenItsCertificateHasEnded) {
  auto book = Open();
  EXPECT_TRUE(book->Admit(any_, {"w0", "key-a", kNowS + 100}, kNowS).ok());
  EXPECT_TRUE(book->Admit(any_, {"w0", "key-b", kNowS + 400}, kNowS + 101).ok());
  EXPECT_TRUE(Open(kNowS + 401)->Admit(any_, {"w0", "key-c", kNowS + 900}, kNowS + 401).ok());
}

TEST_F(Books, TokenThatReplacesGivesTakenNames) {
  auto book = Open();
  EXPECT_TRUE(book->Admit(any_, {"w0", "key-a", kNowS + 100}, kNowS).ok());
  const JoinToken replaces{"", kNowS + 60, "", false, true, "05"};
  EXPECT_TRUE(book->Admit(replaces, {"w0", "key-b", kNowS + 100}, kNowS).ok());
}

TEST_F(Books, TokenForOneTimeIsUsedUp) {
  auto book = Open();
  const JoinToken once{"", kNowS + 60, "", true, false, "03"};
  EXPECT_TRUE(book->Admit(once, {"w0", "key-a", kNowS + 100}, kNowS).ok());
  EXPECT_EQ(book->Admit(once, {"w1", "key-b", kNowS + 100}, kNowS).code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(Open()->Admit(once, {"w1", "key-b", kNowS + 100}, kNowS).code(),
            StatusCode::kPermissionDenied);
}

TEST_F(Books, TokenForAnotherNameIsRefused) {
  const Status refused = Open()->Admit({"", kNowS + 60, "w0", false, false, "04"},
                                       {"w1", "key-a", kNowS + 100}, kNowS);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("'w0'"), HasSubstr("'w1'")));
}

// They ended the controller, by an exception, or were taken for some time.
TEST_F(Books, LinesOfOtherTypesAreLeftOut) {
  std::string lines;
  for (const char* line :
       {R"({"ends_s":1e308,"key":"key-a","name":"w1","token":""})",
        R"({"ends_s":"late","key":"key-a","name":"w1","token":""})",
        R"({"ends_s":9e17,"key":"key-a","name":"w1","token":""})", R"({"name":"w1"})", "[1]"}) {
    lines += std::string(line) + "\n";
  }
  lines += R"({"ends_s":9000000000000000000,"key":7,"name":["w1"],"token":null})"
           "\n";
  ASSERT_TRUE(WriteFileAtomic(dir_.File("issued.jsonl"), lines).ok());
  EXPECT_TRUE(Open()->Admit(any_, {"w1", "key-b", kNowS + 100}, kNowS).ok());
}

TEST_F(Books, LineThatACrashCutOffIsLeftOut) {
  ASSERT_TRUE(Open()->Admit(any_, {"w0", "key-a", kNowS + 100}, kNowS).ok());
  ASSERT_TRUE(AppendFile(dir_.File("issued.jsonl"), "{\"name\":\"w1\",\"ke").ok());
  auto book = Open();
  EXPECT_TRUE(book->Admit(any_, {"w1", "key-b", kNowS + 100}, kNowS).ok());
  EXPECT_FALSE(book->Admit(any_, {"w0", "key-b", kNowS + 100}, kNowS).ok());
}

// ---- Files of secrets ---------------------------------------------------------------------------

TEST(SecretFiles, AreRefusedWhenOthersCanReadThem) {
  const TempDir dir = TempDir::Make().value();
  const std::string path = dir.File("token");
  ASSERT_TRUE(WriteSecretFile(path, "secret").ok());
  EXPECT_EQ(ReadSecretFile(path).value(), "secret");
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  const auto refused = ReadSecretFile(path);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("has mode 0644"), HasSubstr("chmod 600 " + path)));
  EXPECT_EQ(ReadSecretFile(dir.File("none")).error().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadSecretFile(dir.path()).error().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace meshwright::security
