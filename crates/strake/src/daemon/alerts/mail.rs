//! Mail: by an SMTP server, or by a program that takes mail (`sendmail`).
//!
//! Order: connection → TLS → login → one transaction for each address that has not got it. Each
//! address by itself: one that the server refuses for ever keeps nobody else from the mail.
//!
//! Invariants: a login goes over TLS only; STARTTLS is demanded, never offered. Deliberately
//! absent: HTML, and bounds of time (the caller drops what takes too long).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder};
use lettre::transport::smtp;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};

use crate::config;
use crate::config::alerts::Mail;
use crate::daemon::alerts::exec::Program;
use crate::daemon::alerts::message::{Message, moment};
use crate::daemon::alerts::secret::{self, Kept, Place};
use crate::daemon::alerts::ways::{Delivered, Refused};

/// See the module.
#[derive(Debug)]
pub(super) struct Mailer {
    mail: Arc<Mail>,
    password: Kept<String>,
    tls: Kept<TlsParameters>,
    sendmail: Option<Program>,
}

fn address(text: &str) -> Result<Address, Refused> {
    text.parse()
        .map_err(|_| Refused::for_good(format!("'{text}' is no address")))
}

/// A message as mail.
fn letter(mail: &Mail, message: &Message) -> Result<lettre::Message, Refused> {
    let header = |name, value: &str| {
        HeaderValue::new(HeaderName::new_from_ascii_str(name), value.to_owned())
    };
    let time: Option<jiff::Timestamp> = message.time.parse().ok();
    let mut builder: MessageBuilder = lettre::Message::builder()
        .from(Mailbox::new(None, address(&mail.from)?))
        .subject(message.subject.clone())
        // A mail that is sent twice can be known by it.
        .message_id(Some(format!("<{}@{}>", message.id, message.host)))
        .header(ContentType::TEXT_PLAIN)
        .raw_header(header("Auto-Submitted", "auto-generated"))
        .raw_header(header("X-Strake-Severity", message.severity.as_str()));
    if let Some(time) = time {
        builder = builder.date(moment(time));
    }
    for to in &mail.to {
        builder = builder.to(Mailbox::new(None, address(to)?));
    }
    builder
        .body(message.text.clone())
        .map_err(|error| Refused::for_good(format!("no mail can be made of it: {error}")))
}

fn refused(what: &str, error: &smtp::Error) -> Refused {
    let why = format!("{what}: {error}");
    match error.is_permanent() {
        true => Refused::for_good(why),
        false => Refused::for_now(why),
    }
}

impl Mailer {
    pub(super) fn new(mail: Arc<Mail>) -> Mailer {
        let sendmail = mail.sendmail.as_ref();
        let program = |path: &PathBuf| {
            let mut command = vec![path.display().to_string()];
            command.extend(["-i", "-f", &mail.from, "--"].map(str::to_owned));
            Program::new(command)
        };
        Mailer {
            sendmail: sendmail.map(program),
            mail,
            password: Kept::default(),
            tls: Kept::default(),
        }
    }

    /// Does a program take the mail?
    pub(super) fn runs_a_program(&self) -> bool {
        self.sendmail.is_some()
    }

    /// Sends it to all that are not in `done`, and puts those there that took it.
    pub(super) async fn send(
        &mut self,
        message: &Message,
        done: &mut BTreeSet<String>,
        patience: Duration,
    ) -> Result<Delivered, Refused> {
        let mail = Arc::clone(&self.mail);
        let letter = letter(&mail, message)?.formatted();
        let left: Vec<String> = mail
            .to
            .iter()
            .filter(|to| !done.contains(*to))
            .cloned()
            .collect();
        if let Some(sendmail) = &self.sendmail {
            return sendmail.run(&left, Vec::new(), &letter, patience).await;
        }
        let Some((host, port)) = mail.host_and_port() else {
            return Err(Refused::for_good(
                "it has neither server nor sendmail".to_owned(),
            ));
        };
        let result = self.by_server((host, port), message, &letter, &left, done, patience);
        let result = result.await;
        if result.is_err() {
            self.password.doubt();
            self.tls.doubt();
        }
        result
    }

    async fn by_server(
        &mut self,
        (host, port): (String, u16),
        message: &Message,
        letter: &[u8],
        left: &[String],
        done: &mut BTreeSet<String>,
        patience: Duration,
    ) -> Result<Delivered, Refused> {
        let mail = Arc::clone(&self.mail);
        let server = format!("{host} port {port}");
        let tls = match mail.tls {
            config::alerts::Tls::None => Tls::None,
            config::alerts::Tls::Implicit => Tls::Wrapper(self.tls(&host).await?),
            config::alerts::Tls::Starttls => Tls::Required(self.tls(&host).await?),
        };
        let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host)
            .port(port)
            .tls(tls)
            .timeout(Some(patience))
            .hello_name(ClientId::Domain(message.host.clone()));
        let secret = Place::of(
            mail.password_file.as_ref(),
            mail.password_credential.as_ref(),
        );
        if let (Some(user), Some(place)) = (&mail.user, secret) {
            let password = self.password.get(move || place.read()).await;
            let password = password.map_err(Refused::for_now)?;
            transport = transport.credentials(Credentials::new(user.clone(), password));
        }
        let transport = transport.build();
        let from = address(&mail.from)?;
        let mut never: Option<Refused> = None;
        let mut refusing = BTreeSet::new();
        for to in left {
            let envelope = lettre::address::Envelope::new(Some(from.clone()), vec![address(to)?]);
            let envelope = envelope.map_err(|error| Refused::for_good(error.to_string()))?;
            match transport.send_raw(&envelope, letter).await {
                Ok(_) => drop(done.insert(to.clone())),
                Err(error) if error.is_permanent() => {
                    refusing.insert(to.clone());
                    never = Some(refused(&format!("{server}, mail to {to}"), &error));
                }
                Err(error) => return Err(refused(&format!("{server}, mail to {to}"), &error)),
            }
        }
        match never {
            None => Ok(Delivered::Wholly),
            // They would get it again and again if it were tried again.
            Some(refused) if !done.is_empty() => Ok(Delivered::Partly(refusing, refused.why)),
            Some(refused) => Err(refused),
        }
    }

    async fn tls(&mut self, host: &str) -> Result<TlsParameters, Refused> {
        let (host, ca_file) = (host.to_owned(), self.mail.ca_file.clone());
        let read = move || {
            let mut parameters = TlsParameters::builder(host);
            if let Some(path) = &ca_file {
                let certificate = Certificate::from_pem(&secret::pem(path)?)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                parameters = parameters
                    .certificate_store(CertificateStore::None)
                    .add_root_certificate(certificate);
            }
            parameters.build().map_err(|error| error.to_string())
        };
        self.tls.get(read).await.map_err(Refused::for_now)
    }
}
