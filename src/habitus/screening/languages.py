"""The plain forms of the same orders in other languages."""

from __future__ import annotations

import re

from habitus.screening.findings import Category, Risk
from habitus.screening.rules import Rule, Shape, near, text

_IGNORES = "Tells the model to ignore the instructions it already has."
_CONCEALS = "Tells the model to keep something from the user."
_SECRETS = "Wants credentials sent away or shown."

_SPACED: tuple[tuple[str, Category, Shape, str], ...] = (
    (
        "override_instructions_de",
        Category.PROMPT_INJECTION,
        near(
            "ignoriere|ignorieren|ignorier|vergiss|vergessen sie|missachte|umgehe|überschreibe|befolge nicht",
            "vorherigen|vorherige|bisherigen|bisherige|früheren|vorigen|obigen|alle|deine|ihre|system",
            "anweisungen|anweisung|instruktionen|regeln|vorgaben|befehle|richtlinien|prompt|systemprompt",
            gap=25,
        ),
        _IGNORES,
    ),
    (
        "conceal_de",
        Category.PROMPT_INJECTION,
        near(
            "sage|sag|erzähle|verrate|teile|informiere|erwähne|zeige|melde|verschweige|verheimliche",
            "nutzer|benutzer|anwender|user|nutzerin|menschen|niemandem",
            "nichts|nicht|kein|davon|dies|das|diese",
            gap=25,
        ),
        _CONCEALS,
    ),
    (
        "conceal2_de",
        Category.PROMPT_INJECTION,
        near(
            "ohne",
            "nutzer|benutzer|anwender|user|wissen",
            "informieren|mitteilen|merkt|wissen|sagen|fragen|erfährt|nutzers|benutzers|zustimmung",
            gap=25,
        ),
        _CONCEALS,
    ),
    (
        "secrets_de",
        Category.EXFILTRATION,
        near(
            "sende|senden|schicke|schicken|übermittle|lade|übertrage|gib|kopiere",
            "passwörter|passwort|zugangsdaten|schlüssel|geheimnisse|token|tokens|umgebungsvariablen|anmeldedaten",
            "an|hoch|aus|nach|zu",
            gap=40,
        ),
        _SECRETS,
    ),
    (
        "override_instructions_fr",
        Category.PROMPT_INJECTION,
        near(
            "ignore|ignorez|ignorer|oublie|oubliez|contourne|contournez|outrepasse",
            "instructions|consignes|règles|directives|ordres",
            "précédentes|précédente|antérieures|ci-dessus|système|précédents|initiales|de sécurité",
            gap=30,
        ),
        _IGNORES,
    ),
    (
        "override_instructions2_fr",
        Category.PROMPT_INJECTION,
        near(
            "ignore|ignorez|ignorer|oublie|oubliez",
            "toutes|tous|toute",
            "instructions|consignes|règles|directives",
            gap=15,
        ),
        _IGNORES,
    ),
    (
        "conceal_fr",
        Category.PROMPT_INJECTION,
        near(
            "ne",
            "dis|dites|informe|informez|mentionne|mentionnez|révèle|révélez|préviens|parle|signale",
            "pas|rien|jamais",
            "utilisateur|usager|utilisatrice|personne",
            gap=15,
        ),
        _CONCEALS,
    ),
    (
        "conceal2_fr",
        Category.PROMPT_INJECTION,
        near("sans", "informer|prévenir|avertir|que|en parler|le dire", "utilisateur|usager|sache|personne", gap=20),
        _CONCEALS,
    ),
    (
        "secrets_fr",
        Category.EXFILTRATION,
        near(
            "envoie|envoyez|envoyer|transmets|transmettez|téléverse|affiche|copie",
            "mots de passe|mot de passe|identifiants|clés|clé|secrets|jetons|variables",
            gap=40,
        ),
        _SECRETS,
    ),
    (
        "override_instructions_es",
        Category.PROMPT_INJECTION,
        near(
            "ignora|ignore|ignorar|olvida|olvide|descarta|omite|desobedece",
            "instrucciones|reglas|indicaciones|directrices|órdenes",
            "anteriores|previas|anterior|del sistema|precedentes|de seguridad|iniciales",
            gap=30,
        ),
        _IGNORES,
    ),
    (
        "conceal_es",
        Category.PROMPT_INJECTION,
        near(
            "no",
            "digas|diga|informes|informe|menciones|mencione|reveles|revele|avises|cuentes",
            "usuario|usuaria|nadie|cliente",
            gap=25,
        ),
        _CONCEALS,
    ),
    (
        "conceal2_es",
        Category.PROMPT_INJECTION,
        near("sin que|sin", "usuario|informar|avisar|decir|nadie", "sepa|usuario|usuaria|entere|note|nadie", gap=25),
        _CONCEALS,
    ),
    (
        "secrets_es",
        Category.EXFILTRATION,
        near(
            "envía|envíe|enviar|envia|manda|sube|transmite",
            "contraseñas|contraseña|credenciales|claves|secretos|tokens|variables",
            gap=40,
        ),
        _SECRETS,
    ),
    (
        "override_instructions_pt",
        Category.PROMPT_INJECTION,
        near(
            "ignore|ignora|esqueça|esqueca|desconsidere|desobedeça",
            "instruções|instrucoes|regras|diretrizes|ordens",
            "anteriores|prévias|anterior|do sistema|acima",
            gap=30,
        ),
        _IGNORES,
    ),
    (
        "override_instructions_it",
        Category.PROMPT_INJECTION,
        near(
            "ignora|ignorare|dimentica|trascura",
            "istruzioni|regole|direttive",
            "precedenti|precedente|di sistema|del sistema|sopra",
            gap=30,
        ),
        _IGNORES,
    ),
    (
        "override_instructions_ru",
        Category.PROMPT_INJECTION,
        near(
            "игнорируй|игнорируйте|игнорировать|проигнорируй|забудь|забудьте|отбрось|нарушай",
            "инструкции|инструкций|указания|правила|команды|промпт",
            gap=40,
        ),
        _IGNORES,
    ),
    (
        "conceal_ru",
        Category.PROMPT_INJECTION,
        near(
            "не",
            "говори|говорите|сообщай|сообщайте|рассказывай|упоминай|упоминайте|показывай|раскрывай|информируй",
            "пользователю|пользователя|пользователь|никому|человеку",
            gap=20,
        ),
        _CONCEALS,
    ),
    (
        "conceal2_ru",
        Category.PROMPT_INJECTION,
        near("без ведома|незаметно для|втайне от|скрой от|скрывай от", "пользователя|человека|владельца", gap=10),
        _CONCEALS,
    ),
    (
        "secrets_ru",
        Category.EXFILTRATION,
        near(
            "отправь|отправьте|отправляй|перешли|загрузи|пошли|передай|скопируй",
            "пароли|пароль|ключи|ключ|токены|токен|секреты|учетные|учётные|переменные",
            gap=40,
        ),
        _SECRETS,
    ),
)

_UNSPACED: tuple[tuple[str, Category, Shape, str], ...] = (
    (
        "override_instructions_zh",
        Category.PROMPT_INJECTION,
        text(
            r"(?:忽略|无视|忘记|忘掉|忽視|無視|不要遵守|不要遵循|绕过|覆盖|拋棄|抛弃)[^。！？!?\n]{0,12}(?:之前|"
            r"先前|以前|上述|以上|前面|所有|系统|系統|原有|安全)[^。！？!?\n]{0,8}(?:指令|指示|提示|规则|"
            "規則|命令|限制|要求|说明)",
            starts="忽略|无视|忘记|忘掉|忽視|無視|不要遵|绕过|覆盖|拋棄|抛弃",
        ),
        _IGNORES,
    ),
    (
        "conceal_zh",
        Category.PROMPT_INJECTION,
        text(
            r"(?:不要|别|勿|切勿|不得|禁止|不能|不可|不必|无需)(?:告诉|告知|通知|提醒|让|向|对|透露|提示)[^。！？!?\n]{0,6}(?:用户|"
            r"使用者|用戶|任何人|他人)(?:[^。！？!?\n]{0,6}(?:透露|提及|知道|说明|提到|这|此|发现|察觉)|"
            r"[。！，,\n]|$)",
            starts="不要|别|勿|切勿|不得|禁止|不能|不可|不必|无需",
        ),
        _CONCEALS,
    ),
    (
        "conceal2_zh",
        Category.PROMPT_INJECTION,
        text(
            r"(?:瞒着|背着|隐瞒|避免让)[^。！？!?\n]{0,4}(?:用户|使用者|用戶)|在(?:用户|使用者)不知情",
            starts="瞒着|背着|隐瞒|避免让|在用户|在使用者",
        ),
        _CONCEALS,
    ),
    (
        "secrets_zh",
        Category.EXFILTRATION,
        text(
            r"(?:发送|上传|传送|提交|转发|泄露|输出|發送|上傳)[^。！？!?\n]{0,20}(?:密码|密钥|凭证|凭据|"
            r"令牌|私钥|环境变量|密碼|憑證)[^。！？!?\n]{0,16}(?:到|至|给|服务器|http)|把?将?(?:密码|"
            r"密钥|凭证|凭据|令牌|私钥|环境变量)[^。！？!?\n]{0,12}(?:发送|上传|传送|转发|發送|上傳)(?:到|"
            "至|给)",
            starts="发送|上传|传送|提交|转发|泄露|输出|發送|上傳|把密|将密|把凭|将凭|把私|将私|把环|将环|密码|密钥|凭证|私钥|环境变量",
        ),
        _SECRETS,
    ),
    (
        "override_instructions_ja",
        Category.PROMPT_INJECTION,
        text(
            r"(?:以前|これまで|上記|前|すべて|全て|システム|先ほど|今まで)(?:の|まで)?[^。！？!?\n]{0,10}(?:指示|"
            r"命令|プロンプト|ルール|規則|制約)[^。！？!?\n]{0,6}(?:無視|忘れ|破棄|従わ)",
            starts="以前|これまで|上記|前の|すべて|全て|システム|先ほど|今まで",
        ),
        _IGNORES,
    ),
    (
        "conceal_ja",
        Category.PROMPT_INJECTION,
        text(
            r"(?:ユーザー|ユーザ|利用者)[^。！？!?\n]{0,12}(?:言わない|伝えない|知らせない|教えない|見せない|"
            "明かさない|気づかれ|報告しない|内緒|秘密に|隠し|隠す)",
            starts="ユーザ|利用者",
        ),
        _CONCEALS,
    ),
    (
        "secrets_ja",
        Category.EXFILTRATION,
        text(
            r"(?:パスワード|認証情報|秘密鍵|apiキー|トークン|環境変数)[^。！？!?\n]{0,20}(?:送信|アップロード|転送|出力に含め)",
            starts="パスワード|認証情報|秘密鍵|apiキー|トークン|環境変数",
        ),
        _SECRETS,
    ),
    (
        "override_instructions_ko",
        Category.PROMPT_INJECTION,
        text(
            r"(?:이전|앞의|위의|모든|시스템)[^.!?\n]{0,10}(?:지시|명령|프롬프트|규칙)[^.!?\n]{0,8}(?:무시|잊)",
            starts="이전|앞의|위의|모든|시스템",
        ),
        _IGNORES,
    ),
)

UNSPACED_LETTERS = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")


def _rules(rows: tuple[tuple[str, Category, Shape, str], ...]) -> tuple[Rule, ...]:
    return tuple(
        Rule(name=name, category=category, severity=Risk.HIGH, shape=shape, why=why)
        for name, category, shape, why in rows
    )


SPACED = _rules(_SPACED)
UNSPACED = _rules(_UNSPACED)
