//! AlterUserScramCredentials (`ScramControlManager`, KIP-554), and what is kept of a password
//! (RFC 5802).

use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256, Sha512};

use metadata::{Image, ScramUser};
use protocol::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use protocol::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use protocol::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, ErrorCode,
    RemoveUserScramCredentialRecord, Str, UserScramCredentialRecord,
};

use crate::outcome::{code_and_message, v0};
use crate::params::RECORDS_PER_REQUEST_MAX;
use crate::{ApiError, Proposal};

/// The fewest rounds of the hash (`ScramMechanism.minIterations`).
pub const SCRAM_ITERATIONS_MIN: i32 = 4_096;
/// The most rounds of the hash (`ScramControlManager.MAX_ITERATIONS`).
pub const SCRAM_ITERATIONS_MAX: i32 = 16_384;

/// A mechanism of SCRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScramMechanism {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl ScramMechanism {
    /// The mechanism of a number of the protocol.
    pub fn of_code(code: i8) -> Option<Self> {
        match code {
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// The mechanism called `name`.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "SCRAM-SHA-256" => Some(Self::Sha256),
            "SCRAM-SHA-512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Its number in the protocol.
    pub fn code(self) -> i8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    /// The keyed hash of some bytes (RFC 2104).
    fn hmac(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        const ANY: &str = "a key may have any length";
        match self {
            Self::Sha256 => {
                let mut mac = Hmac::<Sha256>::new_from_slice(key).expect(ANY);
                mac.update(text);
                mac.finalize().into_bytes().to_vec()
            }
            Self::Sha512 => {
                let mut mac = Hmac::<Sha512>::new_from_slice(key).expect(ANY);
                mac.update(text);
                mac.finalize().into_bytes().to_vec()
            }
        }
    }

    /// What a password becomes with a salt after so many rounds: `Hi` of RFC 5802.
    pub fn salted_password(self, password: &[u8], salt: &[u8], iterations: i32) -> Vec<u8> {
        let mut first = salt.to_vec();
        first.extend_from_slice(&[0, 0, 0, 1]);
        let mut round = self.hmac(password, &first);
        let mut result = round.clone();
        for _ in 1..iterations {
            round = self.hmac(password, &round);
            for (to, from) in result.iter_mut().zip(&round) {
                *to ^= from;
            }
        }
        result
    }

    /// The keys that are kept: by which a client is known, and by which the server is.
    pub fn keys(self, salted_password: &[u8]) -> (Bytes, Bytes) {
        let client = self.hmac(salted_password, b"Client Key");
        let stored = match self {
            Self::Sha256 => Sha256::digest(&client).to_vec(),
            Self::Sha512 => Sha512::digest(&client).to_vec(),
        };
        (stored.into(), self.hmac(salted_password, b"Server Key").into())
    }
}

/// What becomes of a user whom a request names.
enum Outcome<'a> {
    Deletion(&'a ScramCredentialDeletion),
    Upsertion(&'a ScramCredentialUpsertion),
    Refused(ApiError),
}

/// What AlterUserScramCredentials leads to: one answer for each user.
pub fn alter_scram_credentials(
    image: &Image,
    request: &AlterUserScramCredentialsRequest,
) -> Proposal<AlterUserScramCredentialsResponse> {
    let deletions = request.deletions.iter().map(|one| (&one.name, Outcome::Deletion(one)));
    let upsertions = request.upsertions.iter().map(|one| (&one.name, Outcome::Upsertion(one)));
    let mut outcomes: Vec<(&Str, Outcome<'_>)> = Vec::new();
    for (user, asked) in deletions.chain(upsertions) {
        match outcomes.iter_mut().find(|(other, _)| *other == user) {
            // The first error counts.
            Some((_, Outcome::Refused(_))) => {}
            Some((_, before)) => {
                let message = "A user credential cannot be altered twice in the same request";
                let error = ApiError::new(ErrorCode::DUPLICATE_RESOURCE, message);
                *before = Outcome::Refused(error);
            }
            None => {
                let checked = check(image, user, &asked);
                outcomes.push((user, checked.map_or_else(Outcome::Refused, |()| asked)));
            }
        }
    }
    if outcomes.len() > RECORDS_PER_REQUEST_MAX {
        let refused = || Err(ApiError::plain(ErrorCode::POLICY_VIOLATION));
        let results = outcomes.iter().map(|(user, _)| answer(user, refused())).collect();
        return Proposal::nothing(AlterUserScramCredentialsResponse {
            results,
            ..Default::default()
        });
    }
    let (mut records, mut results) = (Vec::new(), Vec::new());
    for (user, outcome) in outcomes {
        let result = match outcome {
            Outcome::Refused(error) => Err(error),
            Outcome::Deletion(asked) => {
                records.push(v0(RemoveUserScramCredentialRecord {
                    name: user.clone(),
                    mechanism: asked.mechanism,
                    ..RemoveUserScramCredentialRecord::default()
                }));
                Ok(())
            }
            Outcome::Upsertion(asked) => credential(asked).map(|record| records.push(v0(record))),
        };
        results.push(answer(user, result));
    }
    Proposal::new(records, AlterUserScramCredentialsResponse { results, ..Default::default() })
}

fn answer(user: &Str, result: Result<(), ApiError>) -> AlterUserScramCredentialsResult {
    let (error_code, error_message) = code_and_message(result);
    let user = user.clone();
    AlterUserScramCredentialsResult { user, error_code, error_message, ..Default::default() }
}

fn check(image: &Image, user: &Str, asked: &Outcome<'_>) -> Result<(), ApiError> {
    let refuse = |code: ErrorCode, message: &str| Err(ApiError::new(code, message));
    if !image.metadata_version().has_scram() {
        let message = "The current metadata.version does not support SCRAM";
        return refuse(ErrorCode::UNSUPPORTED_VERSION, message);
    }
    if user.is_empty() {
        return refuse(ErrorCode::UNACCEPTABLE_CREDENTIAL, "Username must not be empty");
    }
    let mechanism = match asked {
        Outcome::Deletion(asked) => asked.mechanism,
        Outcome::Upsertion(asked) => asked.mechanism,
        Outcome::Refused(_) => return Ok(()),
    };
    if ScramMechanism::of_code(mechanism).is_none() {
        return refuse(ErrorCode::UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism");
    }
    match asked {
        Outcome::Upsertion(asked) if asked.iterations < SCRAM_ITERATIONS_MIN => {
            refuse(ErrorCode::UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        }
        Outcome::Upsertion(asked) if asked.iterations > SCRAM_ITERATIONS_MAX => {
            refuse(ErrorCode::UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        }
        Outcome::Deletion(_)
            if !image
                .credentials()
                .contains_key(&ScramUser { mechanism, name: (&**user).into() }) =>
        {
            let message = "Attempt to delete a user credential that does not exist";
            refuse(ErrorCode::RESOURCE_NOT_FOUND, message)
        }
        _ => Ok(()),
    }
}

fn credential(asked: &ScramCredentialUpsertion) -> Result<UserScramCredentialRecord, ApiError> {
    let mechanism = ScramMechanism::of_code(asked.mechanism);
    let Some(mechanism) = mechanism.filter(|_| !asked.salted_password.is_empty()) else {
        // Java's keyed hash takes no empty key.
        return Err(ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR));
    };
    let (stored_key, server_key) = mechanism.keys(&asked.salted_password);
    Ok(UserScramCredentialRecord {
        name: asked.name.clone(),
        mechanism: asked.mechanism,
        salt: asked.salt.clone(),
        stored_key,
        server_key,
        iterations: asked.iterations,
        ..UserScramCredentialRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{after, image_with_brokers};

    const SALT: [u8; 4] = [1, 2, 3, 4];

    fn deletion(name: &str, mechanism: i8) -> ScramCredentialDeletion {
        ScramCredentialDeletion { name: name.into(), mechanism, ..Default::default() }
    }

    fn upsertion(name: &str, mechanism: i8, iterations: i32) -> ScramCredentialUpsertion {
        ScramCredentialUpsertion {
            name: name.into(),
            mechanism,
            iterations,
            salt: Bytes::copy_from_slice(&SALT),
            salted_password: Bytes::from_static(b"salted"),
            ..Default::default()
        }
    }

    /// Who is named in which way, and what Kafka 4.4.0 said of it: a deletion of a user and
    /// mechanism, then upsertions with their iterations.
    type Case =
        (Option<(&'static str, i8)>, &'static [(&'static str, i8, i32)], ErrorCode, &'static str);

    #[rustfmt::skip] // A table.
    const CASES: [Case; 11] = {
        let twice = "A user credential cannot be altered twice in the same request";
        let absent = "Attempt to delete a user credential that does not exist";
        let (none, bad) = (ErrorCode::NONE, ErrorCode::UNACCEPTABLE_CREDENTIAL);
        let (duplicate, not_found) = (ErrorCode::DUPLICATE_RESOURCE, ErrorCode::RESOURCE_NOT_FOUND);
        let unsupported = ErrorCode::UNSUPPORTED_SASL_MECHANISM;
        [
            (None, &[("new", 1, 4_096)], none, ""),
            (None, &[("new", 2, 16_384)], none, ""),
            (Some(("known", 1)), &[], none, ""),
            (None, &[("new", 1, 4_095)], bad, "Too few iterations"),
            (None, &[("new", 1, 16_385)], bad, "Too many iterations"),
            (None, &[("", 1, 4_096)], bad, "Username must not be empty"),
            (None, &[("new", 3, 4_096)], unsupported, "Unknown SCRAM mechanism"),
            (Some(("known", 2)), &[], not_found, absent),
            (Some(("known", 1)), &[("known", 2, 4_096)], duplicate, twice),
            (None, &[("new", 1, 4_096), ("new", 2, 4_096)], duplicate, twice),
            // The first error of a user counts.
            (Some(("known", 2)), &[("known", 2, 4_096)], not_found, absent),
        ]
    };

    #[test]
    fn what_is_refused() {
        let empty = image_with_brokers(&[]);
        let request = AlterUserScramCredentialsRequest {
            upsertions: vec![upsertion("known", 1, 4_096)],
            ..Default::default()
        };
        let image = after(&empty, &alter_scram_credentials(&empty, &request).records);
        for (deleted, upserted, code, message) in CASES {
            let deletions = deleted.iter().map(|(name, mechanism)| deletion(name, *mechanism));
            let upsertions =
                upserted.iter().map(|(name, kind, rounds)| upsertion(name, *kind, *rounds));
            let request = AlterUserScramCredentialsRequest {
                deletions: deletions.collect(),
                upsertions: upsertions.collect(),
                ..Default::default()
            };
            let proposal = alter_scram_credentials(&image, &request);
            let [result] = &proposal.response.results[..] else { panic!("one answer: {message}") };
            assert_eq!(result.error_message.as_deref().unwrap_or_default(), message);
            assert_eq!(result.error_code, code, "{message}");
            assert_eq!(proposal.records.len(), usize::from(message.is_empty()), "{message}");
        }
    }

    #[test]
    fn a_credential_is_deleted_for_one_mechanism() {
        let mut image = image_with_brokers(&[]);
        for request in [
            AlterUserScramCredentialsRequest {
                upsertions: vec![upsertion("a", 1, 4096), upsertion("b", 2, 8192)],
                ..Default::default()
            },
            AlterUserScramCredentialsRequest {
                deletions: vec![deletion("a", 1)],
                ..Default::default()
            },
        ] {
            image = after(&image, &alter_scram_credentials(&image, &request).records);
        }
        let left: Vec<_> = image.credentials().keys().map(|user| &*user.name).collect();
        assert_eq!(left, ["b"]);
    }

    /// The example of RFC 7677, whose signature of the server proves the server's key, and whose
    /// proof of the client the stored one.
    #[test]
    fn keys_are_those_of_the_standard() {
        let of = ScramMechanism::Sha256;
        let salt = b"\x5b\x6d\x99\x68\x9d\x12\x35\x8e\xec\xa0\x4b\x14\x12\x36\xfa\x81";
        let salted = of.salted_password(b"pencil", salt, 4096);
        let (stored, server) = of.keys(&salted);
        let said = b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)\
            hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTC\
            AfuxFIlj)hNlF$k0";
        let signature = of.hmac(&server, said);
        // "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        assert_eq!(signature.first_chunk(), Some(&[0xea, 0xba, 0xe2, 0x4d, 0x10, 0x62]));
        // "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        let proof = [0x74, 0x7c, 0xdb, 0x65, 0xaa, 0x56];
        let client = of.hmac(&salted, b"Client Key");
        assert_eq!(Sha256::digest(&client).to_vec(), stored);
        let of_client = of.hmac(&stored, said);
        let sent: Vec<u8> = client.iter().zip(of_client).map(|(key, one)| key ^ one).collect();
        assert_eq!(sent.first_chunk(), Some(&proof));
    }
}
