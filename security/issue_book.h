// Which names of workers have certificates, and which tokens were used up: what the controller
// remembers of joins, in a file of its state folder.
//
// A token that holds for any host may be in the wrong hands: it gives no certificate for the name
// of a worker that has one, or its finder could take that worker's place. A token made for the name
// does (`meshwright cert join-token --name w0`), one that says so (--replace: for hosts that lose
// their folder, as containers do), and asking with the same key again. The certificate that was
// replaced holds until it ends, and is not renewed.
//
// The file has a JSON line for each certificate; lines of those that have ended go when it is
// opened. Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/mutex.h"
#include "base/result.h"
#include "security/join_token.h"

namespace meshwright::security {

class IssueBook {
 public:
  // Errors: those of reading and writing; kDataLoss: a line that is not from here.
  static Result<std::unique_ptr<IssueBook>> Open(const std::string& path, int64_t now_s);

  struct Issue {
    std::string name;
    std::string key_sha256;  // of the request's public key
    int64_t ends_s = 0;      // the certificate
  };
  // OK when the token may have that certificate, which is on disk then: a token is used up before
  // the certificate leaves. Errors: kPermissionDenied naming the way that is left.
  Status Admit(const JoinToken& token, const Issue& issue, int64_t now_s);
  // OK when who has a certificate of that name may have it renewed, which is on disk then. Errors:
  // kPermissionDenied: the name has been given to another key since; those of writing.
  Status Renew(const Issue& issue, int64_t now_s);

 private:
  explicit IssueBook(std::string path) : path_(std::move(path)) {}
  // Whether another key has a certificate of that name.
  bool Taken(const Issue& issue, int64_t now_s) const MW_REQUIRES(mutex_);
  Status Append(const Issue& issue, const std::string& nonce) MW_REQUIRES(mutex_);

  const std::string path_;
  Mutex mutex_;
  std::map<std::string, Issue> issues_ MW_GUARDED_BY(mutex_);  // by name
  std::set<std::string> used_ MW_GUARDED_BY(mutex_);           // nonces of tokens for one host
};

}  // namespace meshwright::security
